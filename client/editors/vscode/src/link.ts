/**
 * The daemon, and the session in view, which stays in view across restarts of the daemon and of `tiller rpc`. It knows
 * no editor. The session is lent the reading of files that are not saved.
 */

import { randomUUID } from "node:crypto";

import {
  type AnyOp,
  type AnyResult,
  Client,
  Ended,
  type EventStream,
  type FileWanted,
  NoAnswer,
  StartedOver,
} from "../../../typescript/src/index.js";
import { Session } from "./session.js";

/** Wait before a submission without an answer is made again, or a `tiller rpc` that has ended is started again. */
const AGAIN_MS = 1000;

/** How often the loan is renewed: a third of its lease. */
const RENEW_MS = 200_000;

/** Kept of what `tiller rpc` writes to stderr, to say why it ended. */
const SAID_CHARS_MAX = 2000;

export interface Program {
  /** The program with its first arguments. */
  command: readonly [string, ...string[]];
  /** Variables for it; by default those of this process. */
  env?: Record<string, string | undefined>;
}

export interface Listener {
  /** The session in view has changed, or there is another one. */
  changed(): void;
  /** Something failed that nobody waits for. */
  failed(message: string): void;
  /** The text of a file below a directory as it is here and not yet saved; undefined if there is none. */
  unsaved(path: string, directory: string): Promise<string | undefined>;
}

export class Link {
  /** The session in view. */
  session: Session | undefined;
  /** Why the daemon can't be reached; empty if it can. */
  connection = "";
  /** The names of the other frontends that have the session open. */
  others: readonly string[] = [];
  /** Where the session in view works, as the user knows it. */
  #directory = "";
  readonly #lender = `vscode-${randomUUID()}`;
  readonly #renewal: unknown;
  readonly #program: () => Program;
  readonly #listener: Listener;
  #client: Promise<Client> | undefined;
  /** The last one that was connected. */
  #last: Client | undefined;
  readonly #lost = new WeakSet<Client>();
  #followed: Session | undefined;
  #stream: EventStream | undefined;
  #closed = false;

  /** `program` is asked each time `tiller rpc` is started. */
  constructor(program: () => Program, listener: Listener) {
    this.#program = program;
    this.#listener = listener;
    this.#renewal = setInterval(() => this.#lend(), RENEW_MS);
  }

  /**
   * Submits an op and returns its result. Without an answer it is submitted again: by its id, the daemon executes it
   * once. Throws `Rejection`, or an error if `tiller rpc` can't be used.
   */
  async submit(op: AnyOp): Promise<AnyResult | undefined> {
    const id = `vscode-${randomUUID()}`;
    for (;;) {
      const client = await this.#connected();
      if (op.type === "user_input") this.#lend();
      try {
        const result = await client.submit(op, id);
        // After a failure, such as a full disk, the session in view can be followed again.
        const session = this.session;
        if (session && "session_id" in op && op.session_id === session.id && this.#followed !== session) {
          void this.#follow(session);
        }
        return result;
      } catch (error) {
        if (error instanceof NoAnswer) await pause();
        else if (error instanceof Ended) this.#lose(client);
        else throw error;
      }
    }
  }

  /** Submits an op whose result has this type. */
  async ask<Type extends AnyResult["type"]>(op: AnyOp, type: Type): Promise<Extract<AnyResult, { type: Type }>> {
    const result = await this.submit(op);
    if (result?.type !== type) throw new Error(`the answer to ${op.type} is not ${type}`);
    return result as Extract<AnyResult, { type: Type }>;
  }

  /** Shows a session of a directory from its first event on, in place of the one before. */
  show(sessionId: string, directory: string): void {
    if (this.session?.id === sessionId) return;
    this.#stream?.close();
    this.#lend(false);
    this.others = [];
    this.#directory = directory;
    this.session = new Session(sessionId);
    this.#listener.changed();
    void this.#follow(this.session);
  }

  /** Ends `tiller rpc`; turns go on without it. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#renewal);
    this.session = undefined;
    await (await this.#client?.catch(() => undefined))?.close();
  }

  /** Follows a session as long as it is in view. */
  async #follow(session: Session): Promise<void> {
    this.#followed = session;
    try {
      while (this.session === session) {
        const client = await this.#connected();
        await this.#take(session, client).catch((error: unknown) => {
          if (!(error instanceof Ended)) throw error;
          this.#lose(client);
        });
      }
    } catch (error) {
      if (this.session === session) this.#listener.failed(sentence(error));
    }
    if (this.#followed === session) this.#followed = undefined;
  }

  async #take(session: Session, client: Client): Promise<void> {
    if (this.session !== session) return;
    const stream = client.follow(session.id, session.seq);
    this.#stream = stream;
    this.#lend();
    while (!stream.closed) {
      try {
        const { done, value } = await stream.next();
        if (done) return;
        session.apply(value);
      } catch (error) {
        if (!(error instanceof StartedOver)) throw error;
        session.reset();
      }
      this.#listener.changed();
    }
  }

  #connected(): Promise<Client> {
    if (this.#closed) return Promise.reject(new Error("the extension has ended"));
    this.#client ??= this.#start().catch((error: unknown) => {
      this.#client = undefined;
      this.#tell(sentence(error));
      throw error;
    });
    return this.#client;
  }

  async #start(): Promise<Client> {
    const last = this.#last;
    if (last) {
      this.#tell("reconnecting");
      await pause();
    }
    const client = await this.#connect();
    // Numbers of another log mean nothing. A `tiller rpc` that ran meanwhile says so itself.
    if (last && last.hello.log_id !== client.hello.log_id) this.session?.reset();
    this.#last = client;
    if (this.session && this.#followed !== this.session) void this.#follow(this.session);
    return client;
  }

  /** `tiller rpc` has ended, as each of its users finds out: the next use starts another one. */
  #lose(client: Client): void {
    if (!this.#lost.has(client)) this.#client = undefined;
    this.#lost.add(client);
  }

  async #connect(): Promise<Client> {
    const { command, env } = this.#program();
    let said = "";
    try {
      return await Client.connect({
        name: "vscode",
        command,
        ...(env ? { env } : {}),
        onState: (state, message) => this.#tell(state === "connected" ? "" : `reconnecting ${message}`),
        onFollowers: (sessionId, names) => this.#meet(sessionId, names),
        onFileWanted: (wanted) => void this.#answer(wanted),
        onStderr: (text) => (said = (said + text).slice(-SAID_CHARS_MAX)),
      });
    } catch (error) {
      if ((error as { code?: string }).code === undefined) throw new Error(said.trim() || sentence(error));
      throw new Error(`${command[0]} can't be run (${sentence(error)}); install tillerd, or set tiller.command`);
    }
  }

  #tell(connection: string): void {
    this.connection = connection;
    this.#lend(); // to a new daemon, which knows no loan
    this.#listener.changed();
  }

  #meet(sessionId: string, names: readonly string[]): void {
    if (sessionId !== this.session?.id) return;
    this.others = names;
    this.#listener.changed();
  }

  /** Lends to the session in view, or takes it back. Without a daemon nothing is lent: that would start one. */
  #lend(reads_files = true): void {
    if (this.session && this.#client && this.#last && !this.connection) {
      const lent = { type: "session_lend", session_id: this.session.id, lender: this.#lender, reads_files } as const;
      void this.#last.submit(lent).catch(() => {}); // the next one may be taken
    }
  }

  async #answer({ question_id, session_id, path }: FileWanted): Promise<void> {
    const inView = session_id === this.session?.id;
    const text = inView ? await this.#listener.unsaved(path, this.#directory).catch(() => undefined) : undefined;
    const answer = { type: "lent_file", question_id, ...(text === undefined ? {} : { text }) } as const;
    await this.#last?.submit(answer).catch(() => {}); // too late
  }
}

/** What an error says. */
export function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
}
