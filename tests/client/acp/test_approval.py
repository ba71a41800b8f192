"""What clients show of a request: whole, verbatim, inert, and its fixed words first."""

import re

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from support.each import each
from tiller_client.acp.approval import code_span, fields_asked, options_for
from tiller_client.acp.calls import content_of
from tiller_client.acp.diffs import hunks_of, whole_files
from tiller_client.acp.questions import Answered, read_outcome
from tiller_client.acp.schema import TextBlock
from tiller_client.acp.updates import CallFields, FileDiff, Shown
from tiller_daemon.tools.editing.diff import unified_diff
from tiller_daemon.tools.truncation import truncate
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import Request, ToolCall

CALL = ToolCall(ItemId("i"), CallId("c"), "write", '{"path": "a\\u202e"}', "pending")

TEXTS = st.lists(
    st.sampled_from(
        ["a", "b", "", "--- a", "+++ b", "-- x", "@@ -1 +1 @@", "\\ No", "\r", "é\u2028"]
    ),
    max_size=12,
).flatmap(lambda lines: st.sampled_from(["\n".join(lines), "\n".join([*lines, ""])]))

HOSTILE = [
    "\u202egnp.exe",
    "a\u2066b\u2069",
    "zero\u200bwidth",
    "filler\u3164",
    "no\u00a0break",
    "tag\U000e0041",
    "\x1b[2K\x1b[1A",
    "\r\x00\x7f\x9b",
    "soft\u00adhyphen",
    "\u2028\u2029",
    "e" + "\u0301" * 9,
    "\u115f\uffa0\u2800",
    "\ufeff\ufe0f",
]
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u115f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff]"
)


def asked(request: Request, **files: str) -> CallFields:
    return fields_asked(request, CALL, "/w", lambda path: files.get(path.removeprefix("/w/")))


def texts(fields: CallFields) -> list[str]:
    """All texts that a client shows, in order."""
    found = [fields.title or ""]
    for one in fields.content or ():
        if isinstance(one, FileDiff):
            found += [one.path, one.old_text or "", one.new_text]
        elif isinstance(one, Shown) and isinstance(one.content, TextBlock):
            found.append(one.content.text)
    return found


@given(before=TEXTS, after=TEXTS)
def test_a_diff_and_the_old_text_give_both_whole_texts(before: str, after: str) -> None:
    top, end = "top\n" * 9, "\nend" * 9
    for old, new in ((before, after), (top + before, top + after), (before + end, after + end)):
        hunks = hunks_of(unified_diff(old, new, "dir/file"), "/w")
        expected = [FileDiff("/w/dir/file", new, old)] if old != new else []
        assert whole_files(hunks, lambda _, old=old: old) == expected


def test_new_and_deleted_files_are_whole_though_they_can_not_be_read() -> None:
    diff = unified_diff(None, "new\n", "a") + unified_diff("old\n", None, "/out/b")
    found = whole_files(hunks_of(diff, "/w"), lambda _: None)
    assert found == [FileDiff("/w/a", "new\n", None), FileDiff("/out/b", "", "old\n")]


LONG = "".join(f"{number}\n" for number in range(30_000))
CHANGE = unified_diff("a\nb\n", "a\nc\n", "f")


@each(
    "diff",
    [
        truncate(unified_diff(None, LONG, "f")),
        truncate(unified_diff(LONG, None, "f")),
        truncate(unified_diff(LONG, LONG.replace("7", "x"), "f")),
        CHANGE.rsplit("\n", 2)[0],
        CHANGE + "[... 7 lines left out ...]\n",
        CHANGE + "\n" + CHANGE,
        CHANGE.replace("+++ b/f\n", ""),
        CHANGE.replace("--- a/f\n", ""),
        CHANGE.replace("+++ b/f\n", "+++ b/f\n+++ b/safe\n"),
        CHANGE.replace("--- a/f\n", "--- a/f\n--- a/safe\n"),
        CHANGE.replace("@@ -", "@@ -x"),
        CHANGE + "The binary content of g changes.\n",
        "The binary content of g changes.\n",
        "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch\n",
    ],
)
def test_a_diff_that_is_not_whole_is_shown_as_text(diff: str) -> None:
    request = Request("r", "approval", "Write f", detail=diff, detail_kind="diff")
    fields = asked(request, f="a\nb\n")
    (shown,) = list(fields.content or ())
    assert isinstance(shown, Shown)
    assert diff in texts(fields)[-1]
    done = ToolCall(ItemId("i"), CallId("c"), "write", "{}", "completed", diff=diff)
    (shown, *_) = content_of(done, "/w", terminal=False)
    assert isinstance(shown, Shown)


@each("now", [None, "", "a\n", "b\na\n", "a\nb", "a\nx\n", "x\na\nb\n", "a\r\nb\r\n"])
def test_a_file_that_is_not_as_the_diff_says_gives_no_whole_texts(now: str | None) -> None:
    request = Request("r", "approval", "Edit f", detail=CHANGE, detail_kind="diff")
    fields = fields_asked(request, CALL, "/w", lambda _: now)
    assert not any(isinstance(one, FileDiff) for one in fields.content or ())
    assert CHANGE in texts(fields)[-1]


def test_each_file_has_one_diff_with_its_whole_texts() -> None:
    old = "".join(f"{number}\n" for number in range(100))
    new = old.replace("\n7\n", "\nx\n").replace("\n77\n", "\ny\n")
    detail = unified_diff(old, new, "f") + unified_diff(None, "z\n", "g")
    names = ("f", "g")
    request = Request(
        "r", "approval", "Patch f, g", subjects=names, detail=detail, detail_kind="diff"
    )
    words, *diffs = list(asked(request, f=old).content or ())
    assert diffs == [FileDiff("/w/f", new, old), FileDiff("/w/g", "z\n", None)]
    assert isinstance(words, Shown)


@each("text", HOSTILE)
def test_nothing_that_is_asked_is_invisible(text: str) -> None:
    line = f"x {text} y"
    requests = [
        Request("r", "approval", f"Run {line}", subjects=(line,), detail=line),
        Request("r", "approval", "Write", permission="p", subjects=(line,), always=(line,)),
        Request(
            "r",
            "approval",
            f"Write {line}",
            detail=unified_diff(f"{line}\na\n", f"{line}\nb\n", f"d{line}"),
            detail_kind="diff",
        ),
        Request(
            "r",
            "approval",
            f"Write {line}",
            detail=unified_diff(None, line, "f"),
            detail_kind="diff",
        ),
        Request("r", "question", line, detail=line, choices=(line, "b")),
    ]
    for request in requests:
        fields = asked(request, **{f"d{line}": f"{line}\na\n"})
        shown = [*texts(fields), *(option.name for option in options_for(request))]
        for one in shown:
            assert not INVISIBLE.search(one), one
            assert "\u0301" * 3 not in one
        assert fields.raw_input is None


@each(
    "text",
    [
        "`code` and ``more``",
        "[make test](https://example.invalid)",
        "![](https://example.invalid/x.png)",
        "<b>bold</b><!--",
        "*a* _b_ ~~c~~",
        "```\n# Run in the sandbox\n```",
        "``````\n````\n`",
        "~~~\nx\n~~~",
        "# heading",
        "https://example.invalid",
        "&lt;&#96;",
        "a\\`b",
        "`",
        "| a | b |\n|---|---|",
    ],
)
def test_no_text_is_markdown(text: str) -> None:
    request = Request("r", "approval", f"Run {text}", detail=f"x\n{text}\ny", subjects=("s", text))
    fields = asked(request)
    title, *shown = texts(fields)
    ticks = re.match("`+", title)
    assert ticks
    inside = title[len(ticks[0]) : -len(ticks[0])]
    assert title.endswith(ticks[0])
    assert max(map(len, re.findall("`+", inside)), default=0) < len(ticks[0])
    assert inside.strip() == f"Run {text}".replace("\n", "␊")
    for block in "".join(shown).split("\n\n"):
        fence = re.match("`{3,}\n", block)
        assert fence
        assert block.endswith(f"\n{fence[0].strip()}")
        assert block.count(fence[0].strip()) == 2
    assert f"x\n{text}\ny" in shown[0]


def test_a_code_span_that_begins_with_a_backtick_has_a_space() -> None:
    assert code_span("`a``") == "``` `a`` ```"


@each(
    ("always", "here", "also", "kinds"),
    [
        ((), "", (), ["allow_once", "reject_once"]),
        (("a",), "", (), ["allow_once", "allow_always", "reject_once"]),
        (("a",), "/w", (), ["allow_once", "allow_always", "reject_once"]),
        (("a", "b"), "/w", ("write",), ["allow_once", "allow_always", "reject_once"]),
    ],
)
def test_no_option_means_more_than_its_kind(
    always: tuple[str, ...], here: str, also: tuple[str, ...], kinds: list[str]
) -> None:
    request = Request(
        "r", "approval", "t", permission="p", always=always, always_here=here, also=also
    )
    options = options_for(request)
    assert [option.kind for option in options] == kinds
    answers = [read_outcome(request, selected(option.option_id)) for option in options]
    assert all(
        isinstance(answer, Answered) and answer.decision != "always_here" for answer in answers
    )
    assert read_outcome(request, selected("always_here")) is None
    assert options[0].name == ("Allow once: p, write" if also else "Allow once")
    if always:
        assert options[1].name == f"Always allow in this session: p {', '.join(always)}"


def test_the_first_content_names_all_permissions_and_files_or_is_the_only_diff() -> None:
    detail = unified_diff(None, "x\n", ".envrc")
    one = Request(
        "r",
        "approval",
        "Write files that may make other programs run something: .envrc",
        permission="protected_path",
        subjects=(".envrc",),
        detail=detail,
        detail_kind="diff",
        also=("write",),
    )
    diff, words = list(asked(one).content or ())
    assert diff == FileDiff("/w/.envrc", "x\n", None)
    assert "`protected_path`, `write`" in texts(asked(one))[-1]
    both = Request(
        "r",
        "approval",
        "Patch",
        permission="protected_path",
        subjects=(".envrc", "b"),
        detail=detail + unified_diff(None, "y\n", "b"),
        detail_kind="diff",
        also=("write",),
    )
    words, *diffs = list(asked(both).content or ())
    assert isinstance(words, Shown)
    assert len(diffs) == 2
    first = texts(asked(both))[1]
    assert first.startswith("This needs several permissions: `protected_path`, `write`")
    assert ".envrc\nb\n" in first


def selected(option: str) -> Raw:
    return Raw(b'{"outcome": {"outcome": "selected", "optionId": "%b"}}' % option.encode())
