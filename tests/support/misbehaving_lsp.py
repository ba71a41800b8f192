"""A language server that misbehaves as HOW says: `python -SEs misbehaving_lsp.py HOW [FILE]`.

When it behaves, it reports each line with `bad` in it. With `tell`, it takes each line as a path,
and reports the content of the file. Tests run it as a program; it needs only
Python.
"""

import json
import os
import sys
import threading
import time

HOW = sys.argv[1] if len(sys.argv) > 1 else "polite"
NOTES = sys.argv[2] if len(sys.argv) > 2 else ""
PULLS = HOW in ("pull", "later", "deaf")
MANY = 1000
CHECK_S = 0.4

texts: dict[str, str] = {}
put_off = 2


def send(message: dict) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\nX-More: yes\r\n\r\n" % len(body) + body)
    sys.stdout.buffer.flush()


def note(what: object) -> None:
    if NOTES:
        with open(NOTES, "a") as file:  # noqa: PTH123
            file.write(json.dumps(what) + "\n")


def found(text: str) -> list[dict]:
    if HOW == "tell":
        text = "\n".join(f"bad: {content(line)}" for line in text.splitlines())
    return [
        {
            "range": {"start": {"line": n, "character": 2}, "end": {"line": n, "character": 3}},
            "severity": 2 if "warn" in line else 1,
            "code": 7,
            "message": f"{line.strip()}\nis bad",
        }
        for n, line in enumerate(text.splitlines())
        if "bad" in line
    ]


def content(path: str) -> str:
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read().strip()
    except OSError as error:
        return type(error).__name__


def received() -> dict:
    length = 0
    while (line := sys.stdin.buffer.readline().strip()) or not length:
        if not line:
            sys.exit(0)
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return json.loads(sys.stdin.buffer.read(length))


def ask() -> None:
    """Send every request that a server may send."""
    items = [{"section": "rude.deep"}, {"section": "nothing"}, {}]
    for number, (method, params) in enumerate(
        (
            ("workspace/configuration", {"items": items}),
            ("client/registerCapability", {"registrations": [{"id": "1", "method": "x/y"}]}),
            ("window/workDoneProgress/create", {"token": "t"}),
            ("workspace/workspaceFolders", None),
            ("workspace/applyEdit", {"edit": {}}),
            ("rude/unheardOf", {}),
        )
    ):
        send({"id": f"q{number}", "method": method, "params": params})


def misbehave() -> None:
    """Misbehave as HOW says, when the first file is opened."""
    if HOW == "crash":
        os._exit(3)
    if HOW == "garbage":
        print("Traceback: this is no message at all\r\n\r\n", flush=True)
    if HOW == "endless":
        while True:
            os.write(1, b"x" * 65536)
    if HOW == "huge":
        os.write(1, b"Content-Length: 99999999999\r\n\r\n")
    if HOW == "no-json":
        os.write(1, b"Content-Length: 5\r\n\r\n{]{]{")
    if HOW == "wrong-types":
        params = {"uri": 3, "diagnostics": "many"}
        send({"method": "textDocument/publishDiagnostics", "params": params})


def publish(uri: str, version: int) -> None:
    if HOW in ("silent", "deaf", "garbage", "no-json", "huge"):
        return
    diagnostics = found(texts[uri]) * (MANY if HOW == "many" else 1)
    params = {"uri": uri, "diagnostics": diagnostics}
    if HOW not in ("unversioned", "empty-first"):
        params["version"] = version
    if HOW == "deeper":
        send({"method": "textDocument/publishDiagnostics", "params": params | {"diagnostics": []}})
    if HOW in ("held", "deeper"):
        threading.Thread(target=publish_when_released, args=(params,), daemon=True).start()
        return
    if HOW == "empty-first":
        send({"method": "textDocument/publishDiagnostics", "params": params | {"diagnostics": []}})
    if HOW in ("empty-first", "slow-start"):
        time.sleep(CHECK_S)
    send({"method": "textDocument/publishDiagnostics", "params": params})
    if HOW == "stale":
        wrong = {"uri": uri, "diagnostics": found("bad\nbad\n"), "version": version - 1}
        send({"method": "textDocument/publishDiagnostics", "params": wrong})


def publish_when_released(params: dict) -> None:
    """Publish once the test has released this text."""
    while texts[params["uri"]] not in released():
        time.sleep(0.01)
    send({"method": "textDocument/publishDiagnostics", "params": params})


def released() -> list[str]:
    """The texts that may be published; all of them are in a file beside the notes."""
    path = NOTES + ".released"
    if not os.path.exists(path):  # noqa: PTH110
        return []
    with open(path) as file:  # noqa: PTH123
        return json.load(file)


def pull(message: dict) -> None:
    global put_off
    if HOW == "deaf":
        return
    if HOW == "later" and put_off:
        put_off -= 1
        send({"id": message["id"], "error": {"code": -32802, "message": "later"}})
        return
    items = found(texts[message["params"]["textDocument"]["uri"]])
    send({"id": message["id"], "result": {"kind": "full", "items": items}})


def main() -> None:
    if HOW == "hang":
        time.sleep(3600)
    if HOW == "die":
        sys.exit("no configuration found")
    note({"pid": os.getpid()})
    while True:
        message = received()
        method, params = message.get("method"), message.get("params") or {}
        note({"answer": message["id"], **message} if method is None else {"method": method})
        if method == "initialize":
            while HOW == "slow-start" and not released():
                time.sleep(0.01)
            can = {"textDocumentSync": 1} | ({"diagnosticProvider": {}} if PULLS else {})
            if HOW == "refuse":
                send({"id": message["id"], "error": {"code": 1, "message": "not today"}})
            else:
                send({"id": message["id"], "result": {"capabilities": can}})
        elif method == "initialized" and HOW == "ask":
            ask()
        elif method in ("textDocument/didOpen", "textDocument/didChange"):
            document = params["textDocument"]
            changes = params.get("contentChanges")
            text = changes[0]["text"] if changes else document["text"]
            is_same = bool(changes) and texts[document["uri"]] == text
            texts[document["uri"]] = text
            note({"text": text})
            misbehave()
            if not PULLS and not (HOW == "changes-only" and is_same):
                publish(document["uri"], document["version"])
        elif method == "textDocument/didClose" and HOW == "changes-only":
            gone = {"uri": params["textDocument"]["uri"], "diagnostics": []}
            send({"method": "textDocument/publishDiagnostics", "params": gone})
        elif method == "textDocument/diagnostic":
            pull(message)


if __name__ == "__main__":
    main()
