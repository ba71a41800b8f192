/** A stream gives every event once and in order, however slow its loop is; tested with a model of `tiller rpc`. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { EventStream, StartedOver } from "./dist/stream.js";

const SESSION = "s";

/** Returns a generator of pseudorandom numbers (mulberry32). */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A model of `tiller rpc`: a log of `head` events, which `send` turns into lines one by one. */
class Rpc {
  lines = [];
  sent = undefined;
  constructor(head) {
    this.head = head;
  }

  write = (line) => {
    if (line.follow) this.sent = line.after;
    if (line.unfollow) {
      this.sent = undefined;
      this.lines.push({ unfollowed: { session_id: SESSION } });
    }
  };

  send() {
    if (this.sent === undefined || this.sent === this.head) return;
    this.lines.push({ event: { session_id: SESSION, seq: ++this.sent } });
    if (this.sent === this.head) this.lines.push({ caught_up: { session_id: SESSION, seq: this.sent } });
  }
}

for (let seed = 0; seed < 300; seed++) {
  test(`seed ${seed}`, async () => {
    const chance = random(seed);
    const rpc = new Rpc(1 + Math.floor(chance() * 30));
    const most = 1 + Math.floor(chance() * 5);
    let ended = false;
    const stream = new EventStream(SESSION, 0, rpc.write, () => (ended = true), most);
    const seen = [];
    let waiting;
    while (seen.length < rpc.head) {
      const choice = chance();
      if (choice < 0.4) rpc.send();
      else if (choice < 0.7 && rpc.lines.length > 0) stream.take(rpc.lines.shift());
      else if (!waiting) {
        waiting = stream.next().then(({ value }) => {
          seen.push(value.seq);
          waiting = undefined;
        });
      }
      await Promise.resolve();
      await Promise.resolve();
    }
    assert.deepEqual(seen, Array.from({ length: rpc.head }, (_, n) => n + 1));
    stream.close();
    while (rpc.lines.length > 0) stream.take(rpc.lines.shift());
    assert.ok(ended);
    assert.deepEqual(await stream.next(), { done: true, value: undefined });
  });
}

test("a new log is an error, after which its events follow from the first one", async () => {
  const stream = new EventStream(SESSION, 7, () => {}, () => {});
  stream.take({ event: { session_id: SESSION, seq: 8 } });
  stream.take({ started_over: SESSION });
  stream.take({ event: { session_id: SESSION, seq: 1 } });
  await assert.rejects(stream.next(), StartedOver);
  assert.equal((await stream.next()).value.seq, 1);
});
