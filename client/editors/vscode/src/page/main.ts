/** The script of the chat's page. */

import type { FromPage, ToPage } from "../messages.js";
import { Page } from "./page.js";

declare function acquireVsCodeApi(): {
  postMessage(message: FromPage): void;
  getState(): { draft: string } | undefined;
  setState(state: { draft: string }): void;
};

const editor = acquireVsCodeApi();
const page = new Page(document, {
  post: (message) => editor.postMessage(message),
  keep: (draft) => editor.setState({ draft }),
});
window.addEventListener("message", ({ data }) => page.take(data as ToPage));
page.start(editor.getState()?.draft ?? "");
