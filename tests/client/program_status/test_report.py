"""The bytes of the Program Status Protocol, against the examples of its specification."""

from base64 import b64decode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tiller_client.program_status.report import (
    MESSAGE_BYTES_MAX,
    TITLE_BYTES_MAX,
    Kind,
    Record,
    State,
    clear,
    id_of,
    is_wanted,
    report,
)

EXAMPLES = [
    (
        "state=blocked:kind=permission:app=terraform:"
        "msg=QXBwbHkgMyB0byBhZGQsIDEgdG8gY2hhbmdlLCAwIHRvIGRlc3Ryb3k/",
        "",
        Record(
            "blocked",
            "permission",
            app="terraform",
            message="Apply 3 to add, 1 to change, 0 to destroy?",
        ),
    ),
    (
        "state=working:app=brew:msg=SW5zdGFsbGluZyB1cGRhdGVz",
        "",
        Record("working", app="brew", message="Installing updates"),
    ),
    (
        "state=blocked:kind=auth:app=brew:msg=UGFzc3dvcmQgcmVxdWlyZWQgdG8gaW5zdGFsbCB1cGRhdGVz",
        "",
        Record("blocked", "auth", app="brew", message="Password required to install updates"),
    ),
    (
        "state=done:app=brew:msg=VXBncmFkZWQgMTIgcGFja2FnZXM=",
        "",
        Record("done", app="brew", message="Upgraded 12 packages"),
    ),
    (
        "state=working:id=us-east:title=VVMgRWFzdA==:progress=40:msg=UHVzaGluZyBpbWFnZQ==",
        "us-east",
        Record("working", progress=40, title="US East", message="Pushing image"),
    ),
    (
        "state=blocked:kind=permission:id=eu-west:title=RVUgV2VzdA==:"
        "msg=QXBwcm92ZSBkZXBsb3kgdG8gZXUtd2VzdCAocHJvZHVjdGlvbik/",
        "eu-west",
        Record(
            "blocked",
            "permission",
            title="EU West",
            message="Approve deploy to eu-west (production)?",
        ),
    ),
    (
        "state=done:app=deploy:msg=RGVwbG95ZWQgdG8gMyByZWdpb25z",
        "",
        Record("done", app="deploy", message="Deployed to 3 regions"),
    ),
]
"""Reports in the specification: the body as it is written there, the id and the record."""

SCREEN_BYTES_MAX = 768
"""The longest escape that GNU screen swallows (`MAXSTR`)."""


@pytest.mark.parametrize(("body", "record_id", "record"), EXAMPLES)
def test_a_report_has_the_bytes_of_the_specification(
    body: str, record_id: str, record: Record
) -> None:
    assert report(record, record_id) == f"\x1b]7501;{body}\x1b\\"


def test_a_clear_has_the_bytes_of_the_specification() -> None:
    assert clear("eu-west") == "\x1b]7501;state=clear:id=eu-west\x1b\\"
    assert clear() == "\x1b]7501;state=clear\x1b\\"


@example("blocked", "permission", 100, "s" * 99, "é" * 999, "é" * 9999)
@given(
    st.sampled_from(["idle", "working", "blocked", "done", "error"]),
    st.sampled_from([None, "permission", "question", "auth"]),
    st.none() | st.integers(0, 100),
    st.text(),
    st.text(max_size=400),
    st.text(max_size=1000),
)
def test_no_text_breaks_a_report(
    state: State, kind: Kind | None, progress: int | None, name: str, title: str, message: str
) -> None:
    record = Record(state, kind, progress, "tiller", title, message)
    written = report(record, id_of(name))
    assert len(written) < SCREEN_BYTES_MAX
    assert written.isascii()
    assert written.startswith("\x1b]7501;state=")
    assert written.endswith("\x1b\\")
    pairs = dict(pair.split("=", 1) for pair in written[7:-2].split(":"))
    for key, bytes_max in (("title", TITLE_BYTES_MAX), ("msg", MESSAGE_BYTES_MAX)):
        text = b64decode(pairs.get(key, ""), validate=True).decode()
        assert len(text.encode()) <= bytes_max
        assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text)
    assert ("kind" in pairs) == (state == "blocked" and kind is not None)
    assert "progress" not in pairs or state in ("working", "blocked")


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/tmux"}, True),
        ({"TERM": "xterm-256color", "TILLER_STATUS": "none"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "linux"}, False),
        ({}, False),
    ],
)
def test_a_terminal_is_told_unless_it_or_the_user_does_not_want_it(
    environ: dict[str, str], *, wanted: bool
) -> None:
    assert is_wanted(environ) is wanted
