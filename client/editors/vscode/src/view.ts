/** The view of the chat: a page that may run this extension's script and nothing else, and may load nothing. */

import { randomUUID } from "node:crypto";

import * as vscode from "vscode";

import type { FromPage, ToPage } from "./messages.js";

const VIEW = "tiller.chat";

export class ChatView implements vscode.WebviewViewProvider {
  readonly #files: vscode.Uri;
  readonly #take: (message: FromPage) => void;
  #view: vscode.WebviewView | undefined;

  /** `take` gets what the user does on the page. */
  constructor(extension: vscode.Uri, take: (message: FromPage) => void) {
    this.#files = vscode.Uri.joinPath(extension, "dist");
    this.#take = take;
  }

  get isVisible(): boolean {
    return this.#view?.visible ?? false;
  }

  register(): vscode.Disposable {
    return vscode.window.registerWebviewViewProvider(VIEW, this);
  }

  async reveal(): Promise<void> {
    await vscode.commands.executeCommand(`${VIEW}.focus`);
  }

  post(message: ToPage): void {
    void this.#view?.webview.postMessage(message);
  }

  resolveWebviewView(view: vscode.WebviewView): void {
    this.#view = view;
    view.onDidDispose(() => (this.#view = undefined));
    view.webview.options = { enableScripts: true, localResourceRoots: [this.#files] };
    view.webview.onDidReceiveMessage((message: FromPage) => this.#take(message));
    view.webview.html = this.#html(view.webview);
  }

  #html(webview: vscode.Webview): string {
    const address = (name: string) => webview.asWebviewUri(vscode.Uri.joinPath(this.#files, name)).toString();
    const nonce = randomUUID();
    const policy = `default-src 'none'; style-src ${webview.cspSource}; script-src 'nonce-${nonce}'`;
    return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<link rel="stylesheet" href="${address("page.css")}">
</head>
<body>
<div id="title"></div>
<div id="blocks"></div>
<div id="waiting"></div>
<div id="status"></div>
<textarea id="draft" rows="3" placeholder="Enter sends, or steers a running turn; Ctrl+Enter queues"></textarea>
<div><button id="send">Send</button><button id="queue">Queue</button><button id="stop">Stop</button></div>
<script nonce="${nonce}" src="${address("main.js")}"></script>
</body>
</html>`;
  }
}
