/** What the extension and the page of its chat tell each other. Plain data; all text in it was made safe. */

import type { Place } from "./diffs.js";
import type { Decision } from "./requests.js";

export type Tone =
  | "plain" | "code" | "dim" | "user" | "done" | "warning" | "error" | "asking" | "added" | "removed";

/** A line of a block; a click goes to its place. */
export interface Line {
  text: string;
  tone: Tone;
  place?: Place;
}

/** What a button does with its block. */
export type Act = Decision | "diff" | "changes";

/** A block as it looks. One with nothing to see is not shown. */
export interface Shown {
  id: string;
  /** One line; empty if the body is all. */
  head: string;
  tone: Tone;
  /** Markdown below the head; empty if there is none. */
  markdown: string;
  /** Lines below the head and the Markdown. */
  body: Line[];
  /** Whether the body can be folded, and is at first. */
  fold: "none" | "open" | "closed";
  /** What the user can do. */
  buttons: { label: string; act: Act }[];
  /** It is no longer part of history. */
  reverted: boolean;
}

/** What is shown around the blocks. */
export interface Around {
  title: string;
  /** What goes on now; empty: nothing. */
  status: string;
  running: boolean;
  /** Which other frontends have the session open; empty: none. */
  others: string;
  queue: { id: string; text: string }[];
  /** Why the daemon can't be reached; empty if it can. */
  connection: string;
}

export type ToPage =
  /** Blocks that are new or have changed; with `anew` they are all there are. */
  | { type: "blocks"; anew: boolean; blocks: Shown[]; around: Around }
  /** Text that could not be sent comes back. */
  | { type: "draft"; text: string };

export type FromPage =
  | { type: "ready" }
  | { type: "send"; text: string; delivery: "auto" | "queue" }
  | { type: "interrupt" }
  | { type: "act"; id: string; act: Act }
  | { type: "take_back"; id: string }
  | { type: "open"; place: Place };
