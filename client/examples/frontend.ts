/** A frontend without dependencies: runs one turn and prints its text as it comes.
 *
 * usage: node frontend.js WORKSPACE PROMPT
 */

import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";

const REQ = 0x30;
const SUB = 0x21;
const SILENCE_MS = 5000; // then look whether the last event was lost

type Json = Record<string, any>;

/** A connection to a socket of the daemon; `receive` throws if it is lost or silent. */
class Pipe {
  private constructor(private readonly socket: Socket) {}

  static async open(path: string, protocol: number): Promise<Pipe> {
    const pipe = new Pipe(connect(path));
    pipe.socket.on("error", () => {}); // `close` follows
    pipe.socket.on("close", () => pipe.socket.emit("readable")); // so that `read` throws
    pipe.socket.write(Buffer.from([0, 0x53, 0x50, 0, 0, protocol, 0, 0]));
    await pipe.read(8); // the same from the daemon
    return pipe;
  }

  async receive(): Promise<Buffer> {
    return this.read(Number((await this.read(9)).readBigUInt64BE(1)));
  }

  send(body: Buffer): void {
    const header = Buffer.alloc(9, 1);
    header.writeBigUInt64BE(BigInt(body.length), 1);
    this.socket.write(Buffer.concat([header, body]));
  }

  close(): void {
    this.socket.destroy();
  }

  private async read(count: number): Promise<Buffer> {
    for (;;) {
      const data: Buffer | null = this.socket.read(count);
      if (data?.length === count) return data;
      if (data || this.socket.destroyed) throw new Error("the daemon is gone");
      await once(this.socket, "readable", { signal: AbortSignal.timeout(SILENCE_MS) });
    }
  }
}

function ulid(): string {
  const number = (BigInt(Date.now()) << 80n) | BigInt(`0x${randomBytes(10).toString("hex")}`);
  const digit = (_: unknown, n: number) => Number((number >> BigInt(125 - 5 * n)) & 31n);
  return Array.from({ length: 26 }, digit)
    .map((n) => "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[n])
    .join("");
}

/** Does `work` until it succeeds: the daemon may be restarted at any time. */
async function persist<Result>(work: () => Promise<Result | undefined>): Promise<Result> {
  for (;;) {
    const result = await work().catch(() => undefined);
    if (result !== undefined) return result;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** Submits an op until there is an answer: however often it is sent, it is executed once. */
function submit(op: Json): Promise<Json> {
  const id = ulid();
  return persist(async () => {
    const token = readFileSync(places.token_file, "utf8").trim();
    const submission = JSON.stringify({ id, op, client: "example", token });
    const ops = await Pipe.open(places.ops_socket, REQ);
    ops.send(Buffer.concat([Buffer.from([0x80, 0, 0, 1]), Buffer.from(submission)]));
    const answer = JSON.parse((await ops.receive().finally(() => ops.close())).toString("utf8", 4));
    if (answer.type === "accepted") return answer.result ?? {};
    if (["unauthorized", "shutting_down", "overloaded"].includes(answer.code)) return undefined;
    console.error(answer.message);
    process.exit(1);
  });
}

const subscribe = () => persist(() => Pipe.open(places.events_socket, SUB));

/** Returns when the session may have new events: a publication, a silence, a new connection. */
async function wait(sessionId: string): Promise<void> {
  try {
    while (!(await events.receive()).toString("latin1").startsWith(`${sessionId}\0`));
  } catch {
    events.close();
    events = await subscribe();
  }
}

const status = execFileSync("tiller", ["daemon", "start", "--json"], { encoding: "utf8" });
const places: Json = JSON.parse(status);
let events = await subscribe();
const [workspace, text] = process.argv.slice(2);
await submit({ type: "hello", protocol_version: 1, name: "example" });
const { session_id } = await submit({ type: "session_create", workspace });
await submit({ type: "user_input", session_id, text });
for (let seen = 0; ; ) {
  const replay = await submit({ type: "replay", session_id, after: seen });
  seen = replay.upto;
  for (const { body } of replay.events) {
    if (body.type === "item_delta" && body.item_type === "assistant_message") {
      process.stdout.write(body.delta);
    } else if (body.type === "request_opened") {
      console.error(`answer with: tiller answer ${body.request.id} once`);
    } else if (body.type === "turn_ended") {
      process.exit(body.outcome === "completed" ? 0 : 1);
    }
  }
  if (seen === replay.head) await wait(session_id);
}
