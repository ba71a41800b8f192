"""A frontend in the standard library alone: runs one turn and prints its text as it comes.

usage: python frontend.py WORKSPACE PROMPT
"""

import json
import secrets
import socket
import subprocess
import sys
import time

REQ, SUB = 0x30, 0x21
SILENCE_S = 5  # then look whether the last event was lost


class Pipe:
    """A connection to a socket of the daemon; any failure is an `OSError`."""

    def __init__(self, path, protocol):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SILENCE_S)
        self.socket.connect(path)
        self.socket.sendall(b"\0SP\0\0" + bytes([protocol]) + b"\0\0")
        self.read(8)  # the same from the daemon

    def read(self, count):
        data = b""
        while len(data) < count:
            data += (piece := self.socket.recv(count - len(data)))
            if not piece:
                raise ConnectionError("the daemon is gone")
        return data

    def receive(self):
        return self.read(int.from_bytes(self.read(9)[1:], "big"))

    def send(self, body):
        self.socket.sendall(b"\1" + len(body).to_bytes(8, "big") + body)


def ulid():
    number = time.time_ns() // 1_000_000 << 80 | secrets.randbits(80)
    return "".join("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[number >> n & 31] for n in range(125, -1, -5))


def submit(op_type, **fields):
    """Submit an op until there is an answer: however often it is sent, it is executed once."""
    global ops
    submission = {"id": ulid(), "op": {"type": op_type, **fields}, "client": "example"}
    while True:
        try:
            submission["token"] = open(places["token_file"]).read().strip()
            ops = ops or Pipe(places["ops_socket"], REQ)
            ops.send(b"\x80\0\0\1" + json.dumps(submission).encode())
            answer = json.loads(ops.receive()[4:])
            if answer["type"] == "accepted":
                return answer.get("result")
            if answer["code"] not in ("unauthorized", "shutting_down", "overloaded"):
                sys.exit(answer["message"])
        except OSError:  # it was restarted, or is slow
            ops = None
        time.sleep(0.2)


def wait(session_id):
    """Return when the session may have new events: a publication, a silence, a new connection."""
    global events
    try:
        while not events.receive().startswith(session_id.encode() + b"\0"):
            pass
    except OSError:
        events = subscribe()


def subscribe():
    while True:
        try:
            return Pipe(places["events_socket"], SUB)
        except OSError:
            time.sleep(0.2)


places = json.loads(subprocess.check_output(["tiller", "daemon", "start", "--json"]))
ops, events, seen = None, subscribe(), 0
submit("hello", protocol_version=1, name="example")
session_id = submit("session_create", workspace=sys.argv[1])["session_id"]
submit("user_input", session_id=session_id, text=sys.argv[2])
while True:
    replay = submit("replay", session_id=session_id, after=seen)
    seen = replay["upto"]
    for body in (event["body"] for event in replay["events"]):
        if body["type"] == "item_delta" and body["item_type"] == "assistant_message":
            print(body["delta"], end="", flush=True)
        elif body["type"] == "request_opened":
            print("answer with: tiller answer", body["request"]["id"], "once", file=sys.stderr)
        elif body["type"] == "turn_ended":
            sys.exit(body["outcome"] != "completed")
    if seen == replay["head"]:
        wait(session_id)
