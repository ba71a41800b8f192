/** Shows what the extension sends, and sends what the user does. Text enters the page as text only, never as HTML. */

import { blocksOf, fill } from "./markdown.js";
import type { Around, FromPage, Line, Shown, ToPage } from "../messages.js";

/** So near to the end, in pixels, the page follows what is added. */
const END_PX = 24;

export interface Host {
  post(message: FromPage): void;
  /** Keeps the draft while the page is hidden, which ends this script. */
  keep(draft: string): void;
}

interface Parts {
  root: HTMLDetailsElement;
  head: HTMLElement;
  prose: HTMLElement;
  /** The blocks of the Markdown, each as it was parsed. */
  parsed: string[];
  body: HTMLElement;
  buttons: HTMLElement;
  shown: Shown | undefined;
}

export class Page {
  readonly #document: Document;
  readonly #host: Host;
  readonly #blocks = new Map<string, Parts>();

  constructor(document: Document, host: Host) {
    this.#document = document;
    this.#host = host;
  }

  /** Reacts to the user from here on, and asks for the session. */
  start(draft: string): void {
    const field = this.#draft;
    field.value = draft;
    field.addEventListener("input", () => this.#host.keep(field.value));
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send(event.ctrlKey || event.metaKey ? "queue" : "auto");
    });
    this.#on("send", () => this.#send("auto"));
    this.#on("queue", () => this.#send("queue"));
    this.#on("stop", () => this.#host.post({ type: "interrupt" }));
    this.#host.post({ type: "ready" });
  }

  take(message: ToPage): void {
    if (message.type === "draft") {
      this.#setDraft([message.text, this.#draft.value].filter(Boolean).join("\n"));
      return;
    }
    const list = this.#find("blocks");
    const follows = list.scrollHeight - list.scrollTop - list.clientHeight < END_PX;
    if (message.anew) {
      this.#blocks.clear();
      list.replaceChildren();
    }
    for (const shown of message.blocks) this.#show(list, shown);
    this.#showAround(message.around);
    if (follows || message.anew) list.scrollTop = list.scrollHeight;
  }

  get #draft(): HTMLTextAreaElement {
    return this.#find("draft") as HTMLTextAreaElement;
  }

  #find(id: string): HTMLElement {
    return this.#document.getElementById(id) as HTMLElement;
  }

  #on(id: string, action: () => void): void {
    this.#find(id).addEventListener("click", action);
  }

  #send(delivery: "auto" | "queue"): void {
    const text = this.#draft.value.trim();
    if (!text) return;
    this.#setDraft("");
    this.#host.post({ type: "send", text, delivery });
  }

  #setDraft(text: string): void {
    this.#draft.value = text;
    this.#host.keep(text);
  }

  #show(list: HTMLElement, shown: Shown): void {
    const parts = this.#blocks.get(shown.id) ?? this.#add(list, shown.id);
    const before = parts.shown;
    const isEmpty = !shown.head && !shown.markdown && shown.body.length === 0 && shown.buttons.length === 0;
    parts.root.hidden = isEmpty;
    parts.root.className = `${shown.tone} fold-${shown.fold}${shown.reverted ? " reverted" : ""}`;
    parts.head.textContent = shown.head;
    parts.head.hidden = !shown.head;
    if (before?.fold !== shown.fold) parts.root.open = shown.fold !== "closed";
    if ((before?.markdown ?? "") !== shown.markdown) this.#showMarkdown(parts, shown.markdown);
    this.#showLines(parts.body, before?.body ?? [], shown.body);
    const buttons = shown.buttons.map(({ label, act }) =>
      this.#button(label, () => this.#host.post({ type: "act", id: shown.id, act })),
    );
    parts.buttons.replaceChildren(...buttons);
    parts.shown = shown;
  }

  #add(list: HTMLElement, id: string): Parts {
    const [root, head] = [this.#element("details"), this.#element("summary")];
    const [prose, body, buttons] = [this.#element("div"), this.#element("div"), this.#element("div")];
    prose.className = "markdown";
    buttons.className = "buttons";
    head.addEventListener("click", (event) => {
      if (this.#blocks.get(id)?.shown?.fold === "none") event.preventDefault();
    });
    root.append(head, prose, body, buttons);
    list.append(root);
    const parts: Parts = { root, head, prose, parsed: [], body, buttons, shown: undefined };
    this.#blocks.set(id, parts);
    return parts;
  }

  /** Replaces the blocks of a text from the first one that differs, as below. */
  #showMarkdown(parts: Parts, text: string): void {
    const blocks = blocksOf(text);
    const parsed = blocks.map((tokens) => JSON.stringify(tokens));
    let same = 0;
    while (same < parsed.length && parsed[same] === parts.parsed[same]) same++;
    while (parts.prose.childNodes.length > same) parts.prose.lastChild?.remove();
    for (const tokens of blocks.slice(same)) {
      const block = this.#element("div");
      fill(block, tokens);
      parts.prose.append(block);
    }
    parts.parsed = parsed;
  }

  /** Replaces lines from the first one that differs: text mostly grows at its end. */
  #showLines(body: HTMLElement, before: readonly Line[], lines: readonly Line[]): void {
    let same = 0;
    while (same < before.length && same < lines.length && isSame(before[same], lines[same])) same++;
    while (body.childNodes.length > same) body.lastChild?.remove();
    body.append(...lines.slice(same).map((line) => this.#line(line)));
  }

  #line({ text, tone, place }: Line): HTMLElement {
    const element = this.#element("div");
    element.textContent = text || " ";
    element.className = `line ${tone}${place ? " place" : ""}`;
    if (place) element.addEventListener("click", () => this.#host.post({ type: "open", place }));
    return element;
  }

  #button(label: string, action: () => void): HTMLElement {
    const button = this.#element("button");
    button.textContent = label;
    button.addEventListener("click", action);
    return button;
  }

  #showAround({ title, status, running, others, queue, connection }: Around): void {
    this.#find("title").textContent = title;
    this.#find("status").textContent = connection || [status, others].filter(Boolean).join(" · ");
    this.#find("send").textContent = running ? "Steer" : "Send";
    this.#find("queue").hidden = this.#find("stop").hidden = !running;
    const rows = queue.map(({ id, text }) => {
      const row = this.#line({ text, tone: "dim" });
      row.append(this.#button("✕", () => this.#host.post({ type: "take_back", id })));
      return row;
    });
    this.#find("waiting").replaceChildren(...rows);
  }

  #element<Name extends keyof HTMLElementTagNameMap>(name: Name): HTMLElementTagNameMap[Name] {
    return this.#document.createElement(name);
  }
}

function isSame(one: Line | undefined, other: Line | undefined): boolean {
  return one?.text === other?.text && one?.tone === other?.tone && one?.place?.line === other?.place?.line
    && one?.place?.path === other?.place?.path;
}
