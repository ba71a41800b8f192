/** Texts in editors that no file has: the two sides of a change. */

import * as vscode from "vscode";

import type { Sides } from "./diffs.js";
import { label, verbatim } from "./text.js";

const SCHEME = "tiller";

/** Texts that are kept for open editors. */
const TEXTS_MAX = 1000;

export class Documents implements vscode.TextDocumentContentProvider {
  readonly #texts = new Map<string, string>();
  #count = 0;

  register(): vscode.Disposable {
    return vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.#texts.get(uri.path) ?? "this change is no longer kept; ask for it again";
  }

  /** Shows changed files side by side. */
  async compare(files: readonly Sides[], title: string): Promise<void> {
    const shown = files.map(({ path, before, after }) => {
      return { path, before: this.#add(path, before), after: this.#add(path, after) };
    });
    const [first, ...others] = shown;
    if (first && others.length === 0) {
      await vscode.commands.executeCommand("vscode.diff", first.before, first.after, label(`${title}: ${first.path}`));
    } else {
      const resources = shown.map(({ before, after }) => [after, before, after]);
      await vscode.commands.executeCommand("vscode.changes", label(title), resources);
    }
  }

  /** Shows a text as a diff, as it is. */
  async show(diff: string): Promise<void> {
    await vscode.window.showTextDocument(this.#add("changes.diff", diff), { preview: true });
  }

  /** The end of the path is that of the file, so that the editor knows the language. */
  #add(path: string, text: string): vscode.Uri {
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${++this.#count}/${path}` });
    // The user may have to approve the text, but a tab is seen in an editor.
    this.#texts.set(uri.path, verbatim(text).replaceAll("␉", "\t"));
    for (const old of [...this.#texts.keys()].slice(0, -TEXTS_MAX)) this.#texts.delete(old);
    return uri;
  }
}
