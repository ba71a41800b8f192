"""Interprets the lines that a user types while a request is open; pure."""

from typing import NamedTuple

from tiller_protocol.items import Decision, Request

_ONCE = ("y", "yes", "once")
_ALWAYS = ("a", "always")
_ALWAYS_HERE = ("h", "here", "always here", "always_here")
_REJECT = ("n", "no", "reject")


class Reply(NamedTuple):
    """An answer to a request, ready to submit."""

    decision: Decision
    text: str = ""


def is_reply(line: str) -> bool:
    """Whether a line consists only of a word that answers an approval."""
    return line.strip().lower() in (*_ONCE, *_ALWAYS, *_ALWAYS_HERE, *_REJECT)


def prompt_for(request: Request, *, rejecting: bool) -> str:
    """The prompt for a request; with `rejecting`, the prompt for the reason."""
    if rejecting:
        return "  why not? (a reason lets the model continue; to give none, press Enter) »"
    if request.kind == "question":
        return "  number or text »" if request.choices else "  your answer »"
    here = " · h always here" if request.always_here else ""
    return f"  y once · a always{here} · n reject »"


def read_reply(request: Request, line: str, *, rejecting: bool) -> Reply | str:
    """Return the reply; `"reject"` if the user must still be asked for the reason; or a hint."""
    line = line.strip()
    if rejecting:
        return Reply("reject", line)
    if request.kind == "question":
        return read_answer(request, line)
    if request.always_here and line.lower() in _ALWAYS_HERE:
        return Reply("always_here")
    word, _, rest = line.partition(" ")
    match word.lower():
        case word if word in _ONCE and not rest:
            return Reply("once")
        case word if word in _ALWAYS and not rest:
            return Reply("always")
        case word if word in _REJECT:
            return Reply("reject", rest.strip()) if rest else "reject"
        case _:
            here = ", h" if request.always_here else ""
            return f"type y, a{here} or n; a reason may follow n"


def read_answer(request: Request, line: str) -> Reply | str:
    """Return the answer to a question, or a hint; the line may be the number of a choice."""
    line = line.strip()
    if not line:
        return "type an answer"
    if line.isdecimal() and 1 <= int(line) <= len(request.choices):
        return Reply("answer", request.choices[int(line) - 1])
    if line.isdecimal() and request.choices:
        return f"type a number from 1 to {len(request.choices)}, or text"
    return Reply("answer", line)
