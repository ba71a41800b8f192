"""Encodes what a program says of itself as an escape of the Program Status Protocol; pure."""

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Literal, NamedTuple

from tiller_client.rendering.text import one_line

State = Literal["idle", "working", "blocked", "done", "error"]
Kind = Literal["permission", "question", "auth"]
"""What a blocked program waits for: a consent, a text, or credentials."""

APP = "tiller"

ROOT = ""
"""The id of the record of the program itself; all other ids are of records below it."""

RECORDS_MAX = 64
"""Number of records that every terminal can keep, by the specification."""

TITLE_BYTES_MAX = 96
MESSAGE_BYTES_MAX = 240
"""Longest texts. The specification allows more, but GNU screen prints the rest of an escape that is
longer than 768 bytes."""

UNSUPPORTED = ("", "dumb", "unknown", "linux", "eterm", "eterm-color")
"""Values of `TERM` for terminals that show nothing of a report, or print it as text."""

_NOT_IN_ID = re.compile(r"[^A-Za-z0-9_.+-]")
_ID_CHARS_MAX = 32


class Record(NamedTuple):
    """What the terminal knows of a program, or of a part of it."""

    state: State
    """What the program does."""
    kind: Kind | None = None
    """Only for `blocked`."""
    progress: int | None = None
    """Percent, from 0 to 100; only for `working` and `blocked`."""
    app: str = ""
    """The program's name; a record without a name inherits it from the record above."""
    title: str = ""
    """The name of this part of the program."""
    message: str = ""
    """One line about what it does, needs or has done."""


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether to report to this terminal. The user turns it off with `TILLER_STATUS=none`."""
    return environ.get("TERM", "") not in UNSUPPORTED and environ.get("TILLER_STATUS") != "none"


def report(record: Record, record_id: str = ROOT) -> str:
    """The escape that replaces one of the terminal's records.

    It is never wrapped for a terminal multiplexer. The specification has no such form, and the
    terminal outside could not tell the panes' records apart.
    """
    has_progress = record.progress is not None and record.state in ("working", "blocked")
    pairs = {
        "state": record.state,
        "kind": record.kind if record.state == "blocked" else None,
        "id": record_id,
        "app": record.app,
        "title": _encoded(record.title, TITLE_BYTES_MAX),
        "progress": str(record.progress) if has_progress else "",
        "msg": _encoded(record.message, MESSAGE_BYTES_MAX),
    }
    return _escape(pairs)


def clear(record_id: str = ROOT) -> str:
    """The escape that removes a record and all records below it; without an id, all records."""
    return _escape({"state": "clear", "id": record_id})


def id_of(text: str) -> str:
    """Turn an id of tiller into one part of a record's id."""
    return _NOT_IN_ID.sub("_", text)[-_ID_CHARS_MAX:]


def _escape(pairs: Mapping[str, str | None]) -> str:
    return f"\x1b]7501;{':'.join(f'{key}={value}' for key, value in pairs.items() if value)}\x1b\\"


def _encoded(text: str, bytes_max: int) -> str:
    """Encode a text in one line; a terminal discards a report with control characters in it."""
    data = one_line(text).encode("utf-8", "replace")
    if len(data) > bytes_max:
        ellipsis = "…".encode()
        data = data[: bytes_max - len(ellipsis)].decode("utf-8", "ignore").encode() + ellipsis
    return b64encode(data).decode()
