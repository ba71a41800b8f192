/**
 * A client of tillerd for node. It runs `tiller rpc`, which starts the daemon, reconnects, and sees to it that every event
 * comes once and in order.
 */

import { type ChildProcess, spawn } from "node:child_process";

import { EventStream } from "./stream.js";
import type {
  AnyAnswer,
  AnyOp,
  AnyResult,
  Event,
  FileWanted,
  HelloResult,
  Rejected,
  RpcInput,
  RpcOutput,
} from "./protocol.js";

export * from "./protocol.js";
export { EventStream, StartedOver } from "./stream.js";

/** The daemon has refused an op. */
export class Rejection extends Error {
  constructor(readonly answer: Rejected) {
    super(answer.message);
  }

  get code(): Rejected["code"] {
    return this.answer.code;
  }
}

/** There is no answer: the op may have taken effect. Submitted again with the same id, it is executed once. */
export class NoAnswer extends Error {}

/** `tiller rpc` has ended, as by `close`; another `Client` may go on, with the same ids and after the same events. */
export class Ended extends Error {}

export interface Options {
  /** The name of your frontend, which others see. */
  name?: string;
  /** The program to run; by default `tiller`, as it is found on the path. */
  command?: readonly [string, ...string[]];
  /** Variables for it; by default those of this process. */
  env?: Record<string, string | undefined>;
  /** Takes what `tiller rpc` writes to stderr, such as why it ends; by default it goes where this process writes its own. */
  onStderr?: (text: string) => void;
  /** Whether there is a daemon to talk to has changed. */
  onState?: (state: NonNullable<RpcOutput["state"]>, message: string) => void;
  /** Other frontends, by their names, have opened or left a session that is followed. */
  onFollowers?: (sessionId: string, names: readonly string[]) => void;
  /** A question about a file, after `session_lend` with `reads_files`; to be answered with `lent_file`. */
  onFileWanted?: (wanted: FileWanted) => void;
  /** A life-cycle event of any session, after `followLifecycle`. Some may be missing after a reconnection. */
  onNotification?: (event: Event) => void;
}

interface Waiting {
  resolve: (answer: AnyAnswer) => void;
  reject: (error: Error) => void;
}

/** A frontend. Close it in the end; turns go on without it. */
export class Client {
  /** The daemon's latest greeting: its version, the `log_id`, its limits. */
  hello!: HelloResult;
  readonly #process: ChildProcess;
  readonly #options: Options;
  readonly #waiting = new Map<number, Waiting>();
  /** Of each session the open stream, behind closed ones whose end is not confirmed yet. */
  readonly #streams = new Map<string, EventStream[]>();
  readonly #closed: Promise<void>;
  #connected: (error?: Error) => void = () => {};
  #lastTag = 0;
  #rest = "";
  #ended: Error | undefined;

  private constructor(options: Options) {
    this.#options = options;
    const [program, ...args] = options.command ?? ["tiller"];
    const stdio = ["pipe", "pipe", options.onStderr ? "pipe" : "inherit"] as const;
    const name = options.name ?? "typescript";
    const env = options.env ? { env: options.env } : {};
    this.#process = spawn(program, [...args, "rpc", "--name", name], { stdio, ...env });
    this.#process.stdout.setEncoding("utf8");
    this.#process.stdout.on("data", (text) => this.#read(text));
    this.#process.stderr?.setEncoding("utf8");
    this.#process.stderr?.on("data", (text) => options.onStderr?.(text));
    this.#process.stdin.on("error", () => {}); // it has ended, which `close` reports
    this.#closed = new Promise((resolve) => {
      const end = (error: Error) => {
        this.#end(error);
        resolve();
      };
      this.#process.on("error", end);
      this.#process.on("close", (status) => end(new Ended(`tiller rpc has ended (${status})`)));
    });
  }

  /** Starts `tiller rpc`, and a daemon if none is running. */
  static connect(options: Options = {}): Promise<Client> {
    return new Promise((resolve, reject) => {
      const client = new Client(options);
      client.#connected = (error) => (error ? reject(error) : resolve(client));
    });
  }

  /**
   * Submits an op and returns its result, if it has one. With an `id` of your own (a ULID) it may be repeated, even by
   * another process: it is executed once. Throws `Rejection` or `NoAnswer`.
   */
  async submit(op: AnyOp, id?: string): Promise<AnyResult | undefined> {
    if (this.#ended) throw this.#ended;
    const tag = ++this.#lastTag;
    const answer = await new Promise<AnyAnswer>((resolve, reject) => {
      this.#waiting.set(tag, { resolve, reject });
      this.#write({ submit: id === undefined ? { op } : { op, id }, tag });
    });
    if (answer.type === "rejected") throw new Rejection(answer);
    return answer.result ?? undefined;
  }

  /** Submits an op whose result has this type. */
  async ask<Type extends AnyResult["type"]>(
    op: AnyOp,
    type: Type,
  ): Promise<Extract<AnyResult, { type: Type }>> {
    const result = await this.submit(op);
    if (result?.type !== type) throw new Error(`the answer to ${op.type} is not ${type}`);
    return result as Extract<AnyResult, { type: Type }>;
  }

  /**
   * The events of a session after the one with the number `after`: those so far, then each new one. One open
   * stream for each session; it ends when you break out of the loop, or close it.
   */
  follow(sessionId: string, after = 0): EventStream {
    if (this.#ended) throw this.#ended;
    const streams = this.#streams.get(sessionId) ?? [];
    if (streams.some((stream) => !stream.closed)) throw new Error(`${sessionId} is followed already`);
    const stream: EventStream = new EventStream(
      sessionId,
      after,
      (line) => this.#write(line),
      () => this.#forget(stream),
    );
    this.#streams.set(sessionId, [...streams, stream]);
    return stream;
  }

  /** Sends life-cycle events of all sessions to `onNotification`. */
  followLifecycle(): void {
    this.#write({ follow: "daemon" });
  }

  /** Ends `tiller rpc` once every submission is answered, and every stream. */
  close(): Promise<void> {
    for (const stream of [...this.#streams.values()].flat()) stream.close();
    this.#process.stdin.end();
    return this.#closed;
  }

  #write(line: RpcInput): void {
    if (!this.#ended) this.#process.stdin.write(`${JSON.stringify(line)}\n`);
  }

  #read(text: string): void {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#take(JSON.parse(line) as RpcOutput);
  }

  #take(line: RpcOutput): void {
    if (line.state) {
      if (line.hello) this.hello = line.hello;
      this.#connected();
      this.#options.onState?.(line.state, line.message ?? "");
    } else if (line.answer) {
      this.#settle(line)?.resolve(line.answer);
    } else if (line.error) {
      this.#settle(line)?.reject(
        line.error.submission_id ? new NoAnswer(line.error.message) : new Error(line.error.message),
      );
    } else if (line.notification) {
      this.#options.onNotification?.(line.notification);
    } else if (line.followers) {
      this.#options.onFollowers?.(line.followers.session_id, line.followers.names);
    } else if (line.file_wanted) {
      this.#options.onFileWanted?.(line.file_wanted);
    } else {
      const id = line.event?.session_id ?? line.caught_up?.session_id ?? line.started_over;
      this.#streams.get(id ?? line.unfollowed?.session_id ?? "")?.[0]?.take(line);
    }
  }

  #forget(stream: EventStream): void {
    const others = this.#streams.get(stream.sessionId)?.filter((other) => other !== stream) ?? [];
    if (others.length > 0) this.#streams.set(stream.sessionId, others);
    else this.#streams.delete(stream.sessionId);
  }

  #settle(line: RpcOutput): Waiting | undefined {
    const tag = line.tag as number;
    const waiting = this.#waiting.get(tag);
    this.#waiting.delete(tag);
    return waiting;
  }

  #end(error: Error): void {
    this.#ended = error;
    this.#connected(error);
    for (const waiting of this.#waiting.values()) waiting.reject(error);
    this.#waiting.clear();
    for (const stream of [...this.#streams.values()].flat()) stream.fail(error);
  }
}
