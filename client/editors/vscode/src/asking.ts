/** The open requests: answers of the user, with the diff of what is asked. */

import * as vscode from "vscode";

import type { Request } from "../../../typescript/src/index.js";
import { sides } from "./diffs.js";
import { DECISIONS, type Decision, decisions, hasDiff } from "./requests.js";
import { label } from "./text.js";
import type { Tiller } from "./tiller.js";
import { contents } from "./workspace.js";

const OTHER = "Something else …";

/** Chooses a decision about an open request, the oldest of several; the chat beside it shows all of the request. */
export async function chooseAnswer(tiller: Tiller): Promise<void> {
  const [request] = tiller.session.requests;
  if (!request) throw new Error("no request is open");
  await tiller.view.reveal();
  const choices: { label: string; act: Decision | "diff" }[] = decisions(request).map((act) => ({ label: DECISIONS[act], act }));
  if (hasDiff(request)) choices.unshift({ label: "Show the diff", act: "diff" });
  const chosen = await vscode.window.showQuickPick(choices, { placeHolder: label(request.title) });
  if (chosen?.act === "diff") await showDiff(tiller, request);
  else if (chosen) await answer(tiller, request, chosen.act);
}

/** Answers a request; asks for the reply or the reason that a decision needs. Dismissed, it stays open. */
export async function answer(tiller: Tiller, request: Request, decision: Decision): Promise<void> {
  if (!decisions(request).includes(decision)) throw new Error(`this request can't be answered by ${decision}`);
  const text = await words(request, decision);
  if (text !== undefined) await tiller.link.submit({ type: "answer", request_id: request.id, decision, text });
}

/** Shows what an edit would change beside what there is. */
export async function showDiff(tiller: Tiller, request: Request): Promise<void> {
  const { workspace } = tiller.session;
  const detail = request.detail ?? "";
  const files = await sides(detail, "before", (path) => contents(workspace, path));
  if (files) await tiller.documents.compare(files, "to approve");
  else await tiller.documents.show(detail);
}

async function words(request: Request, decision: Decision): Promise<string | undefined> {
  if (decision === "reject" && request.kind !== "question") {
    const prompt = "The model gets the reason and goes on. Without one, the turn ends.";
    return vscode.window.showInputBox({ title: "Reason for the rejection", prompt, ignoreFocusOut: true });
  }
  return decision === "answer" ? reply(request) : "";
}

async function reply(request: Request): Promise<string | undefined> {
  const title = label(request.title);
  const choices = (request.choices ?? []).map((choice) => ({ label: label(choice), choice }));
  if (choices.length > 0) {
    const chosen = await vscode.window.showQuickPick([...choices, { label: OTHER, choice: "" }], { placeHolder: title });
    if (chosen === undefined || chosen.choice) return chosen?.choice;
  }
  const typed = await vscode.window.showInputBox({ title: "Answer", prompt: title, ignoreFocusOut: true });
  return typed || undefined;
}
