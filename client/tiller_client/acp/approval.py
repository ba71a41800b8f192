"""Requests as clients show them: whole, verbatim, and inert where a client renders Markdown. Pure.

Fixed words come first. A client that shows only the title and the first content still shows what
matters most.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import structs

from tiller_client.acp.calls import fenced, fields_of
from tiller_client.acp.diffs import hunks_of, whole_files
from tiller_client.acp.schema import TextBlock
from tiller_client.acp.updates import CallContent, CallFields, FileDiff, PermissionOption, Shown
from tiller_client.rendering.requests import other_subjects, row
from tiller_client.rendering.text import verbatim
from tiller_protocol.items import Request, ToolCall

CHOICE_PREFIX = "choice:"

ELSEWHERE: Final = "elsewhere"
"""The option that leaves a question open. Some clients have one key for all options of a kind,
which stands for the last one, so the last one must not answer for the user."""

_TICKS = re.compile("`+")


def fields_asked(
    request: Request, call: ToolCall, workspace: str, read: Callable[[str], str | None]
) -> CallFields:
    """The fields of a call that needs approval; `read` returns the text of a file, if it can."""
    fields = fields_of(call, workspace, terminal=False)
    return structs.replace(
        fields,
        title=code_span(request.title),
        content=_content(request, workspace, read) or None,
        raw_input=None,
        raw_output=None,
    )


def options_for(request: Request) -> tuple[PermissionOption, ...]:
    """The options to answer a request; their labels name what they would allow.

    An option of the kind `allow_always` is for the session, so `always_here` is not offered.
    """
    if request.kind == "question":
        choices = [
            PermissionOption(f"{CHOICE_PREFIX}{number}", in_one_line(choice), "allow_once")
            for number, choice in enumerate(request.choices)
        ]
        if choices:
            choices.append(PermissionOption(ELSEWHERE, "Answer in a terminal", "allow_once"))
        return (*choices, PermissionOption("reject", "Don't answer", "reject_once"))
    several = f": {', '.join((request.permission, *request.also))}" if request.also else ""
    options = [PermissionOption("once", in_one_line(f"Allow once{several}"), "allow_once")]
    if request.always:
        what = f"{request.permission} {', '.join(request.always)}"
        session = in_one_line(f"Always allow in this session: {what}")
        options.append(PermissionOption("always", session, "allow_always"))
    return (*options, PermissionOption("reject", "Reject", "reject_once"))


def in_one_line(text: str) -> str:
    """A text verbatim in one line, for a client that shows it as it is."""
    return row(verbatim(text))


def code_span(text: str) -> str:
    """A text verbatim in one line, as Markdown code that the text can't end."""
    shown = in_one_line(text)
    ticks = "`" * (max(map(len, _TICKS.findall(shown)), default=0) + 1)
    space = " " if "`" in (shown[:1], shown[-1:]) else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


def _content(
    request: Request, workspace: str, read: Callable[[str], str | None]
) -> tuple[CallContent, ...]:
    """The whole text that the user has to see before answering.

    The one diff comes before the words, but several diffs come after the words that list the files.
    """
    diffs: Sequence[FileDiff] = ()
    if request.detail_kind == "diff":
        diffs = whole_files(hunks_of(request.detail, workspace), read)
    words = _words(request, "" if diffs else request.detail)
    shown = [Shown(TextBlock(words))] if words else []
    visible = list(map(_visible, diffs))
    return (*visible, *shown) if len(visible) == 1 else (*shown, *visible)


def _words(request: Request, detail: str) -> str:
    parts: list[str] = []
    if request.also:
        names = ", ".join(map(code_span, (request.permission, *request.also)))
        parts.append(f"This needs several permissions: {names}")
    if detail:
        parts.append(fenced(verbatim(detail)))
    subjects = other_subjects(request) or ([] if request.detail else request.subjects)
    if subjects:
        parts.append(fenced("\n".join(map(in_one_line, subjects))))
    return "\n\n".join(parts)


def _visible(diff: FileDiff) -> FileDiff:
    """The diff with invisible characters made visible, except tabs, which editors align."""
    texts = [
        text and verbatim(text).replace(verbatim("\t"), "\t")
        for text in (diff.new_text, diff.old_text)
    ]
    return FileDiff(in_one_line(diff.path), texts[0] or "", texts[1])
