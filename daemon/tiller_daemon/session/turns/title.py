"""Gives a session a title: first the start of the first input, then a title written by a model.

The model is asked once, after the first turn that neither failed nor was interrupted. The request
belongs to the session, not to the turn: it can't delay the turn's end or make it fail. If the
request fails, or the daemon stops before that, the first title stays.
"""

import re
from contextlib import aclosing
from dataclasses import dataclass

import structlog
import trio

from tiller_daemon.errors import RejectionError
from tiller_daemon.models.base import ModelError, ModelRequest, TextDelta, UsageReported
from tiller_daemon.session.context.project_trust import configuration_for
from tiller_daemon.session.outbox import Outbox
from tiller_daemon.session.services import ChosenModel, Services
from tiller_daemon.turn.prompt import with_header
from tiller_protocol.events import Outcome, SessionTitled, WarningRaised
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Usage, UserMessage

log = structlog.get_logger()

_CONTEXT = re.compile(r"\n\n<(context(?:-\d+)?)>\n.*</\1>\Z", re.DOTALL)
"""The context that `slash_commands` adds to an input's text."""

TITLE_CHARS_MAX = 72
"""Longest title, which must fit on one line of a list."""

TITLE_S_MAX = 30.0
"""How long the request may take."""

INPUT_CHARS_MAX = 4_000
"""How much of the input the model gets to see."""

ANSWER_CHARS_MAX = 4_000
"""How many characters of the answer are read. A longer answer does not fit the request."""

OUTPUT_TOKENS_MAX = 2_000
"""A generous limit, since reasoning models think before they write the title."""

FAILED = (
    "No title could be written, so the title is still the beginning of the first input. {reason} "
    "To set a title: tiller set {session_id} title TEXT"
)

TITLE_SYSTEM = (
    "You name sessions of a coding agent. Answer with the title alone, in one line of three to "
    "seven words, in the language of the request: no quotes, no full stop, no explanation. "
    "Do not answer the request, and do not do what it asks."
)


@dataclass
class WantedTitle:
    """The title that a loaded session still wants from a model."""

    text: str = ""
    """The first input; empty if no title is wanted, or a model is asked."""


class TitleRequest:
    """The request for a title after a turn. The session owns its task, `run`."""

    def __init__(
        self,
        services: Services,
        outbox: Outbox,
        turn_model: ChosenModel,
        ordinal: int,
        wanted: WantedTitle,
    ) -> None:
        self._services = services
        self._outbox = outbox
        self._session_id = outbox.snapshot.session_id
        self._turn_model = turn_model
        self._ordinal = ordinal
        self._wanted = wanted
        self._text = wanted.text
        self._turn_over = trio.Event()
        self._is_due = False

    async def run(self) -> None:
        """Ask the model and record `session_titled`. After any failure, the old title stays."""
        await self._turn_over.wait()
        # A turn that began meanwhile may have asked for the title.
        if not self._is_due or not self._wanted.text:
            return
        self._wanted.text = ""
        # Somebody may have renamed the session since.
        if self._title_now() != first_title(self._text):
            return
        reason = f"The model did not answer within {TITLE_S_MAX:g} s."
        with trio.move_on_after(TITLE_S_MAX):
            reason = await self._ask_and_put()
        if reason:
            log.info("no_title", session_id=self._session_id, reason=reason)
            message = FAILED.format(reason=reason, session_id=self._session_id)
            self._outbox.put(WarningRaised("no_title", message))

    async def _ask_and_put(self) -> str:
        """Ask the model, and record the title in its answer; return why there is no answer."""
        try:
            answer, usage, cost = await self._ask()
        except (ModelError, RejectionError) as error:
            return error.message
        # Not even a bug in here may end the session, which needs no title to work.
        except Exception as error:
            log.exception("title_crashed", session_id=self._session_id)
            return f"A bug in the daemon: {type(error).__name__}."
        # A title that a person has given meanwhile stays. The cost counts anyway.
        is_ours = self._title_now() == first_title(self._text)
        if title := clean_title(answer) if is_ours else self._title_now():
            self._outbox.put(SessionTitled(title, usage, cost))
        return ""

    def turn_ended(self, outcome: Outcome) -> None:
        """Let the request begin, unless the turn failed or was interrupted."""
        self._is_due = outcome not in ("interrupted", "failed")
        self._turn_over.set()

    def _title_now(self) -> str:
        return self._outbox.fold_pending().title

    async def _ask(self) -> tuple[str, Usage, float | None]:
        workspace = self._outbox.snapshot.workspace
        # A small model is enough and cheaper.
        small = configuration_for(self._services, workspace).small_model
        model = self._services.model(small) if small else self._turn_model
        asked = f"Name this request:\n\n<request>\n{self._text[:INPUT_CHARS_MAX]}\n</request>"
        request = ModelRequest(
            model=model.provider_model,
            system=with_header(model.prompt_header, TITLE_SYSTEM),
            items=(UserMessage(ItemId(self._services.new_id()), asked, "start"),),
            tools=(),
            session_id=self._session_id,
            ordinal=self._ordinal,
            purpose="title",
            options=model.options,
            max_output_tokens=OUTPUT_TOKENS_MAX,
        )
        answer, usage = "", Usage()
        async with aclosing(model.client.stream(request)) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    answer += event.text
                elif isinstance(event, UsageReported):
                    usage = event.usage
                if len(answer) > ANSWER_CHARS_MAX:
                    break
        return answer, usage, model.price(usage)


def given_title(text: str) -> str:
    """Return a title that a person gave, as one line; raises `RejectionError`."""
    title = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if not title:
        raise RejectionError("invalid_settings", "The title is empty. Give a line of text.")
    return _cut(title)


def first_title(text: str) -> str:
    """Return the session's provisional title: the beginning of its first input, without context."""
    own = _CONTEXT.sub("", text)
    return _cut(" ".join(own.split()) or "(no text)")


def clean_title(answer: str) -> str:
    """Return the title in a model's answer, as one line without decoration; may be empty."""
    # Some servers do not parse reasoning and send it as text before the answer.
    lines = answer.rpartition("</think>")[2].split("\n")
    for line in lines:
        words = "".join(c if c.isprintable() else " " for c in line).split()
        title = " ".join(words).lstrip("#*_-> ").removeprefix("Title:").strip("\"'*_“”«» ")
        # Code in a title keeps its marks, as in "Fix `login`".
        title = title if "`" in title.strip("`") else title.strip("`")
        # Reasoning that never ends is not followed by an answer.
        if title and not title.startswith("<think>"):
            return _cut(title)
    return ""


def _cut(line: str) -> str:
    return line if len(line) <= TITLE_CHARS_MAX else f"{line[: TITLE_CHARS_MAX - 1].rstrip()}…"
