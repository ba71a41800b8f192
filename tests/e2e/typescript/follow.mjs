/** Runs two turns with a pause between them for the test, and prints the results as JSON. */

import { Client, Rejection } from "./dist/index.js";

const [workspace, model] = process.argv.slice(2);
const states = [];
const client = await Client.connect({ name: "typescript", onState: (state) => states.push(state) });
const settings = { approve: "always", model };
const { session_id } = await client.ask({ type: "session_create", workspace, settings }, "created");
const op = { type: "user_input", session_id, text: "go" };
const id = `id-${process.pid}`;
const first = await client.submit(op, id);
const again = await client.submit(op, id);
const seqs = [];
let turns = 0;
for await (const event of client.follow(session_id)) {
  seqs.push(event.seq);
  if (event.body.type !== "turn_ended" || ++turns === 2) {
    if (turns === 2) break;
    continue;
  }
  process.stdout.write("turn\n");
  await new Promise((resolve) => process.stdin.once("data", resolve));
  await client.submit({ ...op, text: "again" });
}
const rest = [];
for await (const event of client.follow(session_id, 2)) {
  rest.push(event.seq);
  if (event.seq === seqs.at(-1)) break;
}
const codes = [];
await client.submit({ type: "interrupt", session_id: "01NOSUCH" }).catch((error) => {
  codes.push(error instanceof Rejection && error.code);
});
await client.follow("01NOSUCH").next().catch((error) => codes.push(error.message));
await client.close();
await client.submit({ type: "session_list" }).catch((error) => codes.push(error.message));
const same = first.turn_id === again.turn_id;
console.log(JSON.stringify({ session_id, seqs, rest, states, codes, same }));
process.stdin.destroy();
