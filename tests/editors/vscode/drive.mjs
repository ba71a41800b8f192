/**
 * Runs the extension outside of an editor: commands come as lines of JSON, reports go out as such.
 *
 * usage: node drive.mjs EXTENSION PAGE; the extension as a module, or bundled as `.js` of CommonJS
 */

import childProcess from "node:child_process";
import Module from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

import { documentOf } from "./document.mjs";
import * as vscode from "vscode";

const { user } = vscode;
const [extensionPath, pagePath] = process.argv.slice(2);
const send = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
user.report = send;

const spawn = childProcess.spawn;
let rpc;
childProcess.spawn = (...given) => (rpc = spawn(...given));
Module.syncBuiltinESMExports();

const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));
const extension = await import(pathToFileURL(extensionPath));
const { Page } = await import(pathToFileURL(pagePath));

let draft = "";
let page;

/** Opens the view, as the editor does when the user looks at it. */
function openView() {
  let receive = () => {};
  const webview = {
    cspSource: "vscode-resource:",
    asWebviewUri: (uri) => uri,
    onDidReceiveMessage: (listener) => (receive = listener),
    postMessage: (message) => {
      page.take(structuredClone(message));
      send({ screen: page.document.body.rows.join("\n") });
    },
  };
  const view = { webview, onDidDispose() {}, get visible() {
    return user.visible;
  } };
  vscode.chat.resolveWebviewView(view);
  const document = documentOf(webview.html);
  const host = { post: (message) => receive(structuredClone(message)), keep: (text) => (draft = text) };
  page = Object.assign(new Page(document, host), { document });
  page.start(draft);
}

/** Presses the last visible thing with this text. */
function click(text) {
  const found = page.document.body.visible.filter((one) => one.listeners.click && one.textContent === text);
  if (found.length === 0) throw new Error(`nothing to click says ${text}`);
  found.at(-1).dispatch("click");
}

function type({ text, ...keys }) {
  const field = page.document.getElementById("draft");
  field.value = text;
  field.dispatch("keydown", { key: "Enter", ...keys });
}

/** An open document, of which these lines are selected. */
function edit({ path, lines, dirty, selected }) {
  const document = {
    uri: vscode.Uri.file(path),
    isDirty: dirty,
    lineCount: lines.length,
    lineAt: (at) => ({ text: lines[at] }),
    getText: () => `${lines.join("\n")}\n`,
  };
  const [first, last] = selected;
  user.documents = [document];
  user.editor = { document, selection: { start: { line: first, character: 0 }, end: { line: last, character: 1 } } };
}

const actions = {
  user: (given) => void Object.assign(user, given),
  configure: (given) => void Object.assign(user.settings, given),
  activate: () => extension.activate({ extensionUri: vscode.Uri.file("/extension"), subscriptions: [] }),
  view: openView,
  kill_rpc: () => void rpc.kill("SIGKILL"),
  command: (name) => vscode.commands.executeCommand(name),
  click,
  type,
  edit,
};

for await (const line of createInterface({ input: process.stdin })) {
  const [[name, given]] = Object.entries(JSON.parse(line));
  Promise.resolve()
    .then(() => actions[name](given))
    .then((result) => send({ done: result ?? null }))
    .catch((error) => send({ failed: error.stack }));
}
await extension.deactivate();
