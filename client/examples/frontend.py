"""A frontend that needs only the standard library: runs one turn and prints the text as it comes.

usage: python frontend.py WORKSPACE PROMPT
"""

import json
import secrets
import socket
import subprocess
import sys
import time

REQ, SUB = b"\x30", b"\x21"
SILENCE_S = 5  # then check whether the last event was lost


def connect(path, protocol, message=b""):
    with socket.socket(socket.AF_UNIX) as unix:
        unix.settimeout(SILENCE_S)
        unix.connect(path)
        unix.sendall(b"\0SP\0\0" + protocol + b"\0\0" + message)
        pipe = unix.makefile("rb")
    pipe.read(8)  # the daemon's eight bytes
    return pipe


def receive(pipe):
    if body := pipe.read(int.from_bytes(pipe.read(9)[1:], "big")):
        return body
    raise ConnectionError("the daemon is gone")


def submit(op_type, **fields):
    """Submit an op until there is an answer: however often it is sent, it is executed once."""
    number = time.time_ns() // 1_000_000 << 80 | secrets.randbits(80)
    ulid = ("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[number >> at & 31] for at in range(125, -1, -5))
    submission = {"id": "".join(ulid), "op": {"type": op_type, **fields}, "client": "example"}
    while True:
        try:
            submission["token"] = open(places["token_file"]).read().strip()
            body = b"\x80\0\0\1" + json.dumps(submission).encode()
            message = b"\1" + len(body).to_bytes(8, "big") + body
            with connect(places["ops_socket"], REQ, message) as pipe:
                answer = json.loads(receive(pipe)[4:])
            if answer["type"] == "accepted":
                return answer.get("result")
            if answer["code"] not in ("unauthorized", "shutting_down", "overloaded"):
                sys.exit(answer["message"])
        except OSError:  # the daemon was restarted, or is slow
            pass
        time.sleep(0.2)


def wait(events, session_id):
    """Return when the session may have new events: after a publication, silence or a reconnect."""
    try:
        while events and not receive(events).startswith(session_id.encode() + b"\0"):
            pass
        return events or connect(places["events_socket"], SUB)
    except OSError:
        time.sleep(0.2)
        return None


places = json.loads(subprocess.check_output(["tiller", "daemon", "start", "--json"]))
submit("hello", protocol_version=1, name="example")
session_id = submit("session_create", workspace=sys.argv[1])["session_id"]
submit("user_input", session_id=session_id, text=sys.argv[2])
events, seen = None, 0
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
        events = wait(events, session_id)
