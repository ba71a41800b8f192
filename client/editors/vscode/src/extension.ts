/** What the editor starts: it registers the view and the commands. */

import * as vscode from "vscode";

import { answer, chooseAnswer, showDiff } from "./asking.js";
import { configure, goToChange, openSession, revert, sendFile, sendSelection, sendTyped, unrevert } from "./commands.js";
import type { Act, FromPage } from "./messages.js";
import { Tiller, run } from "./tiller.js";
import { goTo, newSession } from "./workspace.js";

let tiller: Tiller | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const made = new Tiller(context.extensionUri, (message) => void run(made, () => onPage(made, message)));
  tiller = made;
  context.subscriptions.push(made.view.register(), made.documents.register());
  for (const [name, action] of Object.entries(actions(made))) {
    const command = vscode.commands.registerCommand(`tiller.${name}`, (given) => run(made, () => action(given)));
    context.subscriptions.push(command);
  }
}

export function deactivate(): Promise<void> | undefined {
  return tiller?.dispose();
}

type Action = (given?: vscode.Uri) => Promise<void>;

function actions(tiller: Tiller): Record<string, Action> {
  const { link, view } = tiller;
  return {
    open: () => view.reveal(),
    new: async () => {
      await newSession(link);
      await view.reveal();
    },
    sessions: () => openSession(tiller),
    send: () => sendTyped(tiller, "Message"),
    steer: () => sendTyped(tiller, "Steer the running turn", { delivery: "steer" }),
    queue: () => sendTyped(tiller, "Message to queue", { delivery: "queue" }),
    sendSelection: () => sendSelection(tiller),
    sendFile: (given) => sendFile(tiller, given),
    interrupt: () => interrupt(tiller),
    answer: () => chooseAnswer(tiller),
    changes: () => goToChange(tiller),
    revert: () => revert(tiller),
    unrevert: () => unrevert(tiller),
    model: () => configure(tiller, "model"),
    agent: () => configure(tiller, "agent"),
  };
}

async function onPage(tiller: Tiller, message: FromPage): Promise<void> {
  switch (message.type) {
    case "ready":
      return tiller.begin();
    case "send":
      return tiller.send(message.text, { delivery: message.delivery });
    case "interrupt":
      return interrupt(tiller);
    case "act":
      return act(tiller, message.id, message.act);
    case "take_back":
      return takeBack(tiller, message.id);
    case "open":
      return goTo(tiller.session.workspace, message.place);
  }
}

async function interrupt({ link, session }: Tiller): Promise<void> {
  await link.submit({ type: "interrupt", session_id: session.id });
}

/** Does what a button of a block says. */
async function act(tiller: Tiller, id: string, wanted: Act): Promise<void> {
  const content = tiller.session.block(id)?.content;
  if (content?.kind === "turn") await goToChange(tiller, content.turnId);
  else if (content?.kind !== "request" || wanted === "changes") return;
  else if (wanted === "diff") await showDiff(tiller, content.request);
  else await answer(tiller, content.request, wanted);
}

/** Takes queued input back into the draft. */
async function takeBack({ link, session, view }: Tiller, inputId: string): Promise<void> {
  const text = session.queue.find(({ id }) => id === inputId)?.text ?? "";
  await link.submit({ type: "queue_edit", session_id: session.id, input_id: inputId, action: "remove" });
  view.post({ type: "draft", text });
}
