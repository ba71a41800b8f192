/** A frontend without dependencies: runs one turn and prints the text as it comes.
 *
 * usage: node frontend.js WORKSPACE PROMPT
 */

import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { setTimeout } from "node:timers/promises";

const REQ = 0x30;
const SUB = 0x21;
const SILENCE_MS = 5000; // then check whether the last event was lost
const DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** Yields messages from a socket of the daemon. The first, an empty one, means "connected". */
async function* connection(path: string, protocol: number, request = "") {
  const socket = connect(path);
  socket.setTimeout(SILENCE_MS, () => socket.destroy(new Error("the daemon is silent")));
  socket.write(Buffer.from([0, 0x53, 0x50, 0, 0, protocol, 0, 0]));
  if (request) {
    const header = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 1]);
    header.writeUIntBE(4 + Buffer.byteLength(request), 3, 6);
    socket.write(Buffer.concat([header, Buffer.from(request)]));
  }
  const sizeOf = (frame: Buffer) =>
    frame.length < 9 ? Infinity : 9 + Number(frame.readBigUInt64BE(1));
  let greeted = false; // whether the daemon's first 8 bytes have arrived
  let data = Buffer.alloc(0);
  for await (const chunk of socket) {
    data = Buffer.concat([data, chunk]);
    for (let size; (size = greeted ? sizeOf(data) : 8) <= data.length; data = data.subarray(size)) {
      yield data.subarray(9, size);
      greeted = true;
    }
  }
}

/** Submits an op until there is an answer: however often it is sent, it is executed once. */
async function submit(op: Record<string, any>): Promise<any> {
  const number = (BigInt(Date.now()) << 80n) | BigInt(`0x${randomBytes(10).toString("hex")}`);
  const digit = (_: any, at: number) => DIGITS[Number((number >> BigInt(125 - 5 * at)) & 31n)];
  const id = Array.from({ length: 26 }, digit).join(""); // a ULID
  for (;;) {
    try {
      const token = readFileSync(places.token_file, "utf8").trim();
      const submission = JSON.stringify({ id, op, client: "example", token });
      for await (const message of connection(places.ops_socket, REQ, submission)) {
        const answer = message.length ? JSON.parse(message.toString("utf8", 4)) : {};
        if (answer.type === "accepted") return answer.result;
        if (/unauthorized|shutting_down|overloaded/.test(answer.code)) break;
        if (answer.message) {
          console.error(answer.message);
          process.exit(1);
        }
      }
    } catch {} // the daemon was restarted, or is slow
    await setTimeout(200);
  }
}

/** Returns when the session may have new events: after a publication, silence or a reconnect. */
async function wait(sessionId: string): Promise<void> {
  try {
    for (let message; (message = (await events.next()).value); ) {
      if (!message.length || message.toString("latin1").startsWith(`${sessionId}\0`)) return;
    }
  } catch {} // the daemon was restarted, or is silent
  await setTimeout(200);
  events = connection(places.events_socket, SUB);
}

const status = execFileSync("tiller", ["daemon", "start", "--json"], { encoding: "utf8" });
const places: Record<string, string> = JSON.parse(status);
let events = connection(places.events_socket, SUB);
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
