/** The folders of the window: their sessions, and paths in them. */

import { readFile, realpath } from "node:fs/promises";
import { isAbsolute, join } from "node:path";

import * as vscode from "vscode";

import type { Settings } from "../../../typescript/src/index.js";
import type { Place } from "./diffs.js";
import type { Link } from "./link.js";

/** Shows the most recently active session of the folder, unless one is in view by then; false if there is none. */
export async function lastSession(link: Link): Promise<boolean> {
  const workspace = await realpath(folder().uri.fsPath);
  const { sessions } = await link.ask({ type: "session_list", workspace, limit: 1 }, "session_list");
  if (sessions[0] && !link.session) link.show(sessions[0].session_id, workspace);
  return sessions.length > 0;
}

/** Shows a new session, with the model and the agent of the settings. */
export async function newSession(link: Link): Promise<void> {
  const configured = vscode.workspace.getConfiguration("tiller");
  const settings: Settings = {};
  for (const name of ["model", "agent"] as const) {
    const value = configured.get<string>(name);
    if (value) settings[name] = value;
  }
  const workspace = await realpath(folder().uri.fsPath);
  const { session_id } = await link.ask({ type: "session_create", workspace, settings }, "created");
  link.show(session_id, workspace);
}

/** The absolute path of one in a session's workspace. */
export function absolute(workspace: string, path: string): string {
  return isAbsolute(path) ? path : join(workspace, path);
}

/** Reads what a file contains now; undefined if it can't be read. */
export async function contents(workspace: string, path: string): Promise<string | undefined> {
  return readFile(absolute(workspace, path), "utf8").catch(() => undefined);
}

/**
 * The text of a file below a directory, in an editor with changes that are not saved; undefined if there are none. The
 * daemon may run on another machine, and must not read other files of this one.
 */
export async function unsaved(path: string, directory: string): Promise<string | undefined> {
  const wanted = await realpath(path);
  if (!wanted.startsWith(join(await realpath(directory), "/"))) return undefined;
  for (const document of vscode.workspace.textDocuments) {
    const isOfFile = document.isDirty && document.uri.scheme === "file";
    if (isOfFile && (await real(document.uri.fsPath)) === wanted) return document.getText();
  }
  return undefined;
}

/** Goes to a place in a file. */
export async function goTo(workspace: string, { path, line }: Place): Promise<void> {
  const position = new vscode.Position(line - 1, 0);
  const selection = new vscode.Range(position, position);
  await vscode.window.showTextDocument(vscode.Uri.file(absolute(workspace, path)), { selection });
}

function real(path: string): Promise<string> {
  return realpath(path).catch(() => path);
}

/** The folder of the active editor, or the first one. */
function folder(): vscode.WorkspaceFolder {
  const active = vscode.window.activeTextEditor?.document.uri;
  const found = (active && vscode.workspace.getWorkspaceFolder(active)) ?? vscode.workspace.workspaceFolders?.[0];
  if (!found) throw new Error("open a folder first: a session works in one");
  return found;
}
