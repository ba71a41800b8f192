/** What the commands of the palette do, apart from requests. */

import * as vscode from "vscode";

import type { CatalogResult, SessionSummary } from "../../../typescript/src/index.js";
import { diffLines, sides } from "./diffs.js";
import { changeLine } from "./show.js";
import { label } from "./text.js";
import type { Extras, Tiller } from "./tiller.js";
import { contents, goTo } from "./workspace.js";

/** Sessions that are offered for choice. */
const SESSIONS_LISTED = 100;

export async function openSession({ link, view }: Tiller): Promise<void> {
  const { sessions } = await link.ask({ type: "session_list", limit: SESSIONS_LISTED }, "session_list");
  const choices = sessions.map((one: SessionSummary) => ({
    label: label(one.title || one.session_id),
    description: label(`${one.status ?? "idle"} · ${one.turns ?? 0} turns · ${one.session_id.slice(-8)}`),
    detail: label(one.workspace),
    id: one.session_id,
    workspace: one.workspace,
  }));
  const chosen = await vscode.window.showQuickPick(choices, { placeHolder: "Session", matchOnDetail: true });
  if (!chosen) return;
  link.show(chosen.id, chosen.workspace);
  await view.reveal();
}

/** Asks for a message and sends it. */
export async function sendTyped(tiller: Tiller, prompt: string, extras: Extras = {}): Promise<void> {
  const text = await vscode.window.showInputBox({ prompt: label(prompt), ignoreFocusOut: true });
  if (text) await tiller.send(text, extras);
}

/** Asks about the selected lines, which go along as they are in the editor, saved or not. */
export async function sendSelection(tiller: Tiller): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor) throw new Error("no editor is active");
  const { document, selection } = editor;
  const { start, end } = selection;
  const last = end.character === 0 && end.line > start.line ? end.line - 1 : end.line;
  await sendLines(tiller, document, start.line, last);
}

/** Asks about a file, by its path; unsaved, by its text. */
export async function sendFile(tiller: Tiller, given?: vscode.Uri): Promise<void> {
  const uri = given ?? vscode.window.activeTextEditor?.document.uri;
  if (!uri) throw new Error("no editor is active");
  const document = vscode.workspace.textDocuments.find((one) => one.uri.toString() === uri.toString());
  if (document?.isDirty || document?.isUntitled) await sendLines(tiller, document, 0, document.lineCount - 1);
  else await sendTyped(tiller, `About ${vscode.workspace.asRelativePath(uri)}`, { files: [uri.fsPath] });
}

async function sendLines(tiller: Tiller, document: vscode.TextDocument, first: number, last: number): Promise<void> {
  const name = vscode.workspace.asRelativePath(document.uri);
  const rows = Array.from({ length: last - first + 1 }, (_, at) => document.lineAt(first + at).text);
  const what = `${name}, lines ${first + 1} to ${last + 1}`;
  await sendTyped(tiller, `About ${what}`, { context: `${what}:\n${rows.join("\n")}\n` });
}

/** Goes to a file that a turn has changed, or compares all of them. */
export async function goToChange(tiller: Tiller, turnId?: string): Promise<void> {
  const { session, link, documents } = tiller;
  const turn = turnId ?? session.turns.filter((one) => !one.reverted).at(-1)?.id;
  if (!turn) throw new Error("this session has no turn yet");
  const { files, diff } = await link.ask({ type: "session_diff", session_id: session.id, turn_id: turn }, "session_diff");
  if (files.length === 0) throw new Error("the turn changed no file");
  const all = { label: "Compare all", path: "" };
  const choices = [all, ...files.map((file) => ({ label: label(changeLine(file)), path: file.path }))];
  const chosen = await vscode.window.showQuickPick(choices, { placeHolder: "Changed file" });
  if (!chosen) return;
  const isThere = (await contents(session.workspace, chosen.path)) !== undefined;
  if (chosen !== all && isThere) {
    const hunk = diffLines(diff).find(({ isHunk, place }) => isHunk && place?.path === chosen.path);
    await goTo(session.workspace, hunk?.place ?? { path: chosen.path, line: 1 });
    return;
  }
  const compared = await sides(diff, "after", (path) => contents(session.workspace, path));
  if (compared) await documents.compare(compared, "changes of the turn");
  else await documents.show(diff);
}

/** Puts files and history back to before a turn that the user chooses. */
export async function revert({ link, session }: Tiller): Promise<void> {
  const turns = session.turns.filter((one) => !one.reverted).reverse();
  const choices = turns.map(({ id, text }) => ({ label: label(text || id), id }));
  const chosen = await vscode.window.showQuickPick(choices, { placeHolder: "Revert to before this turn" });
  if (!chosen) return;
  const question = label(`Undo “${chosen.label}” and everything after it, in files and history?`);
  if ((await vscode.window.showWarningMessage(question, { modal: true }, "Revert")) !== "Revert") return;
  await link.ask({ type: "revert", session_id: session.id, turn_id: chosen.id }, "revert");
}

export async function unrevert({ link, session }: Tiller): Promise<void> {
  await link.ask({ type: "unrevert", session_id: session.id }, "revert");
}

/** Changes the model or the agent, from the next turn on. */
export async function configure({ link, session }: Tiller, what: "model" | "agent"): Promise<void> {
  const catalog = await link.ask({ type: "catalog", workspace: session.workspace }, "catalog");
  const offered = what === "model" ? models(catalog) : agents(catalog);
  const chosen = await vscode.window.showQuickPick(offered, { placeHolder: what });
  if (!chosen) return;
  const settings = { [what]: chosen.name };
  await link.submit({ type: "session_configure", session_id: session.id, settings });
}

function models({ models }: CatalogResult) {
  return models.map(({ name, problem }) => ({ label: label(name), description: label(problem ?? ""), name }));
}

function agents({ agents }: CatalogResult) {
  return agents.map(({ name, problem, description }) => ({
    label: label(name),
    description: label(problem || description || ""),
    name,
  }));
}
