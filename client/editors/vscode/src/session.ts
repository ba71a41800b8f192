/**
 * A session as its events make it: blocks in the order in which they are shown, and what goes on now. `show` says what
 * a block looks like. It knows no editor.
 */

import type {
  Event,
  Item,
  ItemDelta,
  PlanEntry,
  QueuedInput,
  Request,
  RequestResolved,
  Settings,
  ToolCall,
  ToolCallUpdated,
  TurnContextShown,
  TurnEnded,
} from "../../../typescript/src/index.js";

export type NoteTone = "dim" | "warning" | "error";

/** What a block is about. */
export type Content =
  | { kind: "item"; item: Item }
  | { kind: "request"; request: Request; resolution?: RequestResolved }
  | { kind: "plan"; plan: readonly PlanEntry[] }
  | { kind: "note"; text: string; tone: NoteTone }
  | { kind: "turn"; turnId: string; ended: TurnEnded };

/** Something that is shown. */
export interface Block {
  /** Of the item, request or event. */
  readonly id: string;
  /** The event that it began with. */
  readonly seq: number;
  content: Content;
  /** The revert that took it out of history, counted from 1; 0: none. */
  reverted: number;
}

/** A turn that may be reverted. */
export interface Turn {
  /** Its id. */
  readonly id: string;
  /** The event that it began with. */
  readonly seq: number;
  /** What the user said first. */
  text: string;
  /** As in a block. */
  reverted: number;
}

export class Session {
  /** The last event that was taken. */
  seq = 0;
  blocks: Block[] = [];
  turns: Turn[] = [];
  workspace = "";
  title = "";
  settings: Settings = {};
  status: "busy" | "idle" | "retry" | "waiting" = "idle";
  statusCause = "";
  queue: readonly QueuedInput[] = [];
  /** Of the running turn, or of the last one. */
  context: TurnContextShown | undefined;
  /** Size of the history as the provider counted it; 0 if it has not. */
  contextTokens = 0;
  #byId = new Map<string, Block>();
  #dirty = new Set<Block>();
  #reverts = 0;

  constructor(readonly id: string) {}

  /** Forgets everything; the events come again from the first one. */
  reset(): void {
    Object.assign(this, new Session(this.id));
    this.#byId = new Map();
    this.#dirty = new Set();
    this.#reverts = 0;
  }

  /** The open requests, oldest first. */
  get requests(): Request[] {
    return this.blocks.flatMap(({ content }) =>
      content.kind === "request" && !content.resolution ? [content.request] : [],
    );
  }

  /** The block of an item, a request or a turn's end. */
  block(id: string): Block | undefined {
    return this.#byId.get(id);
  }

  /** The blocks to show anew since the last call, in their order. */
  takeDirty(): Block[] {
    const dirty = this.blocks.filter((block) => this.#dirty.has(block));
    this.#dirty.clear();
    return dirty;
  }

  /** Takes the next event. */
  apply(event: Event): void {
    const { body, seq } = event;
    this.seq = seq;
    switch (body.type) {
      case "session_created":
        this.workspace = body.workspace;
        this.settings = body.settings;
        return;
      case "session_configured":
        this.settings = body.settings;
        return;
      case "session_titled":
        this.title = body.title;
        return;
      case "status_changed":
        this.status = body.status;
        this.statusCause = body.cause ?? "";
        return;
      case "queue_changed":
        this.queue = body.queue;
        return;
      case "turn_started":
        this.context = body.context;
        this.turns.push({ id: event.turn_id ?? "", seq, text: "", reverted: 0 });
        return;
      case "step_ended":
        this.#count((body.usage.input_tokens ?? 0) + (body.usage.output_tokens ?? 0));
        return;
      case "turn_ended":
        this.#count(body.context_tokens ?? 0);
        this.#add(`turn ${seq}`, seq, { kind: "turn", turnId: event.turn_id ?? "", ended: body });
        return;
      default:
        this.#applyToBlocks(event);
    }
  }

  #applyToBlocks({ body, seq, turn_id }: Event): void {
    switch (body.type) {
      case "item_started":
      case "item_completed":
        this.#put(body.item.id, seq, { kind: "item", item: { ...body.item } });
        if (body.item.type === "user_message") this.#name(turn_id, body.item.text);
        return;
      case "item_delta":
        this.#extend(body);
        return;
      case "tool_call_updated":
        this.#update(body);
        return;
      case "request_opened":
        this.#put(body.request.id, seq, { kind: "request", request: body.request });
        return;
      case "request_resolved":
        this.#resolve(body);
        return;
      case "plan_updated":
        this.#put(`plan ${turn_id}`, seq, { kind: "plan", plan: body.plan });
        return;
      case "history_compacted":
        this.contextTokens = 0;
        this.#note(seq, `history was compacted: ${body.tokens_after} tokens, ${body.tokens_before} before`);
        return;
      case "history_reverted":
        this.contextTokens = 0;
        this.#revert(body.to_seq, body.undone ?? false);
        this.#note(seq, body.undone ? "the revert was undone" : "reverted: history and files are back at an earlier turn", "warning");
        for (const path of body.conflicts ?? []) {
          this.#note(seq, `left as it is: ${path}`, "warning");
        }
        return;
      case "warning":
      case "error":
        this.#note(seq, body.message, body.type);
        return;
    }
  }

  #add(id: string, seq: number, content: Content): void {
    const block: Block = { id, seq, content, reverted: 0 };
    this.blocks.push(block);
    this.#byId.set(id, block);
    this.#dirty.add(block);
  }

  /** Adds a block, or gives the one with this id another content. */
  #put(id: string, seq: number, content: Content): void {
    const block = this.#byId.get(id);
    if (!block) {
      this.#add(id, seq, content);
      return;
    }
    block.content = content;
    this.#dirty.add(block);
  }

  #note(seq: number, text: string, tone: NoteTone = "dim"): void {
    this.#add(`note ${seq} ${this.blocks.length}`, seq, { kind: "note", text, tone });
  }

  #count(tokens: number): void {
    if (tokens > 0) this.contextTokens = tokens;
  }

  #name(turnId: string | null | undefined, text: string): void {
    const turn = this.turns.find((one) => one.id === turnId);
    if (turn && !turn.text) turn.text = text;
  }

  #item(id: string): Item | undefined {
    const block = this.#byId.get(id);
    if (block?.content.kind !== "item") return undefined;
    this.#dirty.add(block);
    return block.content.item;
  }

  #extend({ item_id, channel, delta }: ItemDelta): void {
    const item = this.#item(item_id) as Partial<Record<ItemDelta["channel"], string>> | undefined;
    if (item) item[channel] = (item[channel] ?? "") + delta;
  }

  #update(body: ToolCallUpdated): void {
    const call = this.#item(body.item_id) as ToolCall | undefined;
    if (!call) return;
    call.state = body.state;
    if (body.error_kind) call.error_kind = body.error_kind;
    if (body.title) call.title = body.title;
    if (body.sub_agent) call.sub_agent = body.sub_agent;
    if (body.rewritten_arguments) call.rewritten_arguments = body.rewritten_arguments;
  }

  #resolve(resolution: RequestResolved): void {
    const block = this.#byId.get(resolution.request_id);
    if (block?.content.kind !== "request") return;
    block.content.resolution = resolution;
    this.#dirty.add(block);
  }

  /** Marks what a revert took out of history, or takes back the marks of the last one. */
  #revert(toSeq: number, undone: boolean): void {
    if (!undone) this.#reverts++;
    for (const one of [...this.blocks, ...this.turns]) {
      const before = one.reverted;
      if (undone && before === this.#reverts) one.reverted = 0;
      else if (!undone && !before && one.seq > toSeq) one.reverted = this.#reverts;
      if (one.reverted !== before && "content" in one) this.#dirty.add(one);
    }
    if (undone) this.#reverts--;
  }
}
