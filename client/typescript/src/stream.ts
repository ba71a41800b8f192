/** The events of one session, as an asynchronous iterator. */

import type { Event, RpcInput, RpcOutput } from "./protocol.js";

/** Most events that wait for a slow loop; beyond that they stay with the daemon. */
const QUEUED_MAX = 10_000;

/** The daemon has a new log: forget the events of the session. They follow again from the first one. */
export class StartedOver extends Error {}

type Entry = Event | StartedOver;

/**
 * Every event once and in order, also across restarts of the daemon. After a `StartedOver` you may go on with `next`. If you
 * are slow, no event is lost, and memory stays bounded: what does not fit is left with the daemon, and fetched later.
 */
export class EventStream implements AsyncIterableIterator<Event> {
  /** Whether every event so far has arrived. */
  caughtUp = false;
  /** Whether the stream was closed. */
  closed = false;
  readonly #write: (line: RpcInput) => void;
  readonly #onEnd: () => void;
  readonly #queuedMax: number;
  #queue: Entry[] = [];
  #last: number;
  #followed = false;
  #full = false;
  #ended = false;
  #failure: Error | undefined;
  #wake = () => {};

  /** For `Client.follow`. `onEnd` is called when no further line is for this stream. */
  constructor(
    readonly sessionId: string,
    after: number,
    write: (line: RpcInput) => void,
    onEnd: () => void,
    queuedMax = QUEUED_MAX,
  ) {
    this.#last = after;
    this.#write = write;
    this.#onEnd = onEnd;
    this.#queuedMax = queuedMax;
    this.#follow();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Waits for the next event; `done` once the stream is closed. */
  async next(): Promise<IteratorResult<Event>> {
    while (!this.closed && !this.#ended && this.#queue.length === 0) {
      await new Promise<void>((wake) => (this.#wake = wake));
    }
    if (this.closed) return { done: true, value: undefined };
    const entry = this.#queue.shift();
    this.#followAgain();
    if (entry instanceof StartedOver) throw entry;
    if (entry) return { done: false, value: entry };
    if (this.#failure) throw this.#failure;
    return { done: true, value: undefined };
  }

  /** Ends the stream, as `break` does in a loop. */
  async return(): Promise<IteratorResult<Event>> {
    this.close();
    return { done: true, value: undefined };
  }

  /** Ends the stream; the session may be followed again at once. */
  close(): void {
    if (this.closed || this.#ended) return;
    this.closed = true;
    if (!this.#followed) this.fail(undefined);
    else if (!this.#full) this.#write({ unfollow: this.sessionId });
    this.#wake();
  }

  /** For the client: takes a line about this session. */
  take(line: RpcOutput): void {
    if (line.event && !this.#full) {
      this.#last = line.event.seq;
      this.#queue.push(line.event);
      if (this.#queue.length >= this.#queuedMax && !this.closed) {
        this.#full = true;
        this.#write({ unfollow: this.sessionId });
      }
    } else if (line.caught_up) {
      this.caughtUp = !this.#full;
    } else if (line.started_over) {
      this.#last = 0;
      this.caughtUp = false;
      this.#queue = [new StartedOver(`the daemon has a new log; forget ${this.sessionId}`)];
    } else if (line.unfollowed) {
      this.#followed = false;
      const message = line.unfollowed.message;
      if (message || this.closed) this.fail(message ? new Error(message) : undefined);
      else this.#followAgain();
    }
    this.#wake();
  }

  /** For the client: ends the stream after what has arrived, with an error or without. */
  fail(error: Error | undefined): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#failure = error;
    this.#onEnd();
    this.#wake();
  }

  #followAgain(): void {
    if (this.#full && !this.#followed && this.#queue.length === 0 && !this.#ended) this.#follow();
  }

  #follow(): void {
    this.#followed = true;
    this.#full = false;
    this.caughtUp = false;
    this.#write({ follow: this.sessionId, after: this.#last });
  }
}
