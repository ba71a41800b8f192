/** Calls functions of the extension that need nothing else: `[name, ...arguments]` as a line, the result as a line. */

import { createInterface } from "node:readline";

import { Uri, user } from "vscode";

import { documentOf } from "./document.mjs";

const out = "./editors/vscode/src/";
const { sanitized, verbatim } = await import(`${out}text.js`);
const { sides } = await import(`${out}diffs.js`);
const { unsaved } = await import(`${out}workspace.js`);
const { Page } = await import(`${out}page/page.js`);

/** A page, and what it shows of one block, which may change. */
function aBlock() {
  const names = ["title", "blocks", "waiting", "status", "draft", "send", "queue", "stop"];
  const document = documentOf(names.map((id) => `<div id="${id}">`).join(""));
  const page = new Page(document, { post() {}, keep() {} });
  const around = { title: "", status: "", running: false, queue: [], connection: "" };
  const nothing = { id: "b", head: "", tone: "plain", markdown: "", body: [], fold: "none", buttons: [] };
  const change = (look) => page.take({ type: "blocks", anew: false, blocks: [{ ...nothing, ...look }], around });
  return { change, shown: document.getElementById("blocks") };
}

/** The rows of a block to which these bodies were given, one after the other. */
function rows(...bodies) {
  const { change, shown } = aBlock();
  for (const texts of bodies) change({ body: texts.map((text) => ({ text, tone: "plain" })) });
  return shown.rows;
}

/** The elements of a block to which these texts in Markdown were given, one after the other. */
function markdown(...texts) {
  const { change, shown } = aBlock();
  for (const text of texts) change({ markdown: text });
  return shown.childNodes[0].childNodes[1].childNodes.flatMap((one) => one.childNodes.map((within) => within.tree));
}

/** What is lent of a file while these files are open with changes that are not saved. */
function lent(path, directory, open) {
  const documents = open.map((name) => ({ uri: Uri.file(name), isDirty: true, getText: () => "not saved" }));
  Object.assign(user, { documents });
  return unsaved(path, directory).catch(() => null);
}

const functions = {
  markdown,
  unsaved: lent,
  rows,
  sanitized,
  verbatim,
  sides: (diff, now, text) => sides(diff, now, async () => text ?? undefined),
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...given] = JSON.parse(line);
  console.log(JSON.stringify((await functions[name](...given)) ?? null));
}
