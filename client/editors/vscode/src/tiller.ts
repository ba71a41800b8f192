/** The session in view, the chat that shows it, and the status bar. What the user commands is in `commands`. */

import * as vscode from "vscode";

import type { UserInput } from "../../../typescript/src/index.js";
import { Documents } from "./documents.js";
import { Link, sentence } from "./link.js";
import type { FromPage } from "./messages.js";
import type { Session } from "./session.js";
import { around, show, statusLine } from "./show.js";
import { label } from "./text.js";
import { ChatView } from "./view.js";
import { lastSession, newSession, unsaved } from "./workspace.js";

/** Streamed text is shown this often. */
const FLUSH_MS = 50;

/** Input beside its text and session. */
export type Extras = Partial<Pick<UserInput, "context" | "delivery" | "files">>;

export class Tiller implements vscode.Disposable {
  readonly link: Link;
  readonly documents = new Documents();
  readonly view: ChatView;
  readonly #bar = vscode.window.createStatusBarItem(vscode.StatusBarAlignment.Right, 100);
  /** The blocks that the page has; a session that begins anew has other ones. */
  #onPage: Session["blocks"] | undefined;
  #flushes = false;
  #opening: Promise<void> | undefined;
  #announced = new Set<string>();

  /** `take` gets what the user does on the page. */
  constructor(extension: vscode.Uri, take: (message: FromPage) => void) {
    this.view = new ChatView(extension, take);
    this.link = new Link(program, {
      changed: () => this.#changed(),
      failed: (message) => this.fail(message),
      unsaved,
    });
    this.#bar.command = "tiller.open";
    this.#bar.text = statusLine(undefined, "");
    this.#bar.show();
  }

  dispose(): Promise<void> {
    this.#bar.dispose();
    return this.link.close();
  }

  fail(message: string): void {
    void vscode.window.showErrorMessage(label(`tiller: ${message}`));
  }

  /** The session in view. */
  get session(): Session {
    if (!this.link.session) throw new Error("no session is open; send a message, or open one");
    return this.link.session;
  }

  /** The page is there, empty: shows the session, or the most recently active one of the workspace. */
  async begin(): Promise<void> {
    this.#onPage = undefined;
    this.#changed();
    if (!this.link.session && vscode.workspace.workspaceFolders) await lastSession(this.link);
  }

  /** Sends input, to a new session if there is none. What could not be sent comes back. */
  async send(text: string, extras: Extras = {}): Promise<void> {
    try {
      if (!this.link.session) await (this.#opening ??= this.#open());
      await this.link.submit({ type: "user_input", session_id: this.session.id, text, ...extras });
    } catch (error) {
      this.view.post({ type: "draft", text });
      throw error;
    }
  }

  /** One at a time: a second message must not make a second session. */
  async #open(): Promise<void> {
    try {
      if (!(await lastSession(this.link))) await newSession(this.link);
    } finally {
      this.#opening = undefined;
    }
  }

  #changed(): void {
    if (this.#flushes) return;
    this.#flushes = true;
    setTimeout(() => {
      this.#flushes = false;
      this.#flush();
    }, FLUSH_MS);
  }

  #flush(): void {
    const { session, connection, others } = this.link;
    const dirty = session?.takeDirty() ?? [];
    const anew = this.#onPage === undefined || this.#onPage !== session?.blocks;
    this.#onPage = session?.blocks;
    const blocks = (anew ? (session?.blocks ?? []) : dirty).map(show);
    const shown = around(session, connection, others);
    this.#bar.text = statusLine(session, connection);
    this.#bar.tooltip = label(connection || shown.title);
    void vscode.commands.executeCommand("setContext", "tiller.running", shown.running);
    this.view.post({ type: "blocks", anew, blocks, around: shown });
    if (session) void this.#announce(session);
  }

  /** Tells of requests that nobody sees. */
  async #announce(session: Session): Promise<void> {
    for (const { id, title } of session.requests) {
      if (this.#announced.has(id)) continue;
      this.#announced.add(id);
      if (this.view.isVisible) continue;
      const chosen = await vscode.window.showWarningMessage(label(`tiller asks: ${title}`), "Show");
      if (chosen) await this.view.reveal();
    }
  }
}

/** Runs an action of the user, and says why it failed. */
export async function run(tiller: Tiller, action: () => Promise<void>): Promise<void> {
  try {
    await action();
  } catch (error) {
    tiller.fail(sentence(error));
  }
}

function program(): { command: [string, ...string[]] } {
  const configured = vscode.workspace.getConfiguration("tiller").get<string[]>("command") ?? [];
  const [first = "tiller", ...others] = configured;
  return { command: [first, ...others] };
}
