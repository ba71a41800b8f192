/** Calls functions of the extension that need nothing else: `[name, ...arguments]` as a line, the result as a line. */

import { createInterface } from "node:readline";

import { documentOf } from "./document.mjs";

const out = "./editors/vscode/src/";
const { sanitized, verbatim } = await import(`${out}text.js`);
const { sides } = await import(`${out}diffs.js`);
const { Page } = await import(`${out}page/page.js`);

/** The rows of a block to which these bodies were given, one after the other. */
function rows(...bodies) {
  const names = ["title", "blocks", "waiting", "status", "draft", "send", "queue", "stop"];
  const document = documentOf(names.map((id) => `<div id="${id}">`).join(""));
  const page = new Page(document, { post() {}, keep() {} });
  const around = { title: "", status: "", running: false, queue: [], connection: "" };
  for (const texts of bodies) {
    const body = texts.map((text) => ({ text, tone: "plain" }));
    const block = { id: "b", head: "", tone: "plain", body, fold: "none", buttons: [], reverted: false };
    page.take({ type: "blocks", anew: false, blocks: [block], around });
  }
  return document.getElementById("blocks").rows;
}

const functions = {
  rows,
  sanitized,
  verbatim,
  sides: (diff, now, text) => sides(diff, now, async () => text ?? undefined),
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...given] = JSON.parse(line);
  console.log(JSON.stringify((await functions[name](...given)) ?? null));
}
