/** Calls functions of the extension that need nothing else: `[name, ...arguments]` as a line, the result as a line. */

import { createInterface } from "node:readline";

const out = "./editors/vscode/src/";
const { sanitized, verbatim } = await import(`${out}text.js`);
const { sides } = await import(`${out}diffs.js`);

const functions = {
  sanitized,
  verbatim,
  sides: (diff, now, text) => sides(diff, now, async () => text ?? undefined),
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...given] = JSON.parse(line);
  console.log(JSON.stringify((await functions[name](...given)) ?? null));
}
