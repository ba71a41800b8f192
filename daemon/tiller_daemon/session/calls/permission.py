"""The user's leave for a call, and the user's answer to a question: what policy and people say."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tiller_daemon.policy.rules import Verdict, decide, patterns_for_always
from tiller_daemon.session.requests import Reply
from tiller_daemon.tools.base import Requirement, ToolFailure, UserAnswer
from tiller_daemon.turn.ports import Refusal
from tiller_protocol.items import Request, RequestKind, ToolCall
from tiller_protocol.settings import Approve, Rule

TITLE_CHARS_MAX = 200

CHANGED_MEANWHILE = (
    "not run: what this call would touch changed while it was being judged. Look again, then call "
    "it again."
)

NOBODY_THERE = (
    "Nobody is there to answer: this session asks no one. Decide yourself, and say what you chose."
)


@dataclass(frozen=True)
class Permission:
    """Decides about the calls of one turn, and asks whoever is attached.

    `rules` returns the rules as they are now: a grant of the user counts at once. `ask` shows a
    request and returns when it is resolved.
    """

    approve: Approve
    rules: Callable[[], tuple[Rule, ...]]
    ask: Callable[[Request], Awaitable[Reply]]
    new_id: Callable[[], str]

    def verdict(self, requirements: tuple[Requirement, ...]) -> Verdict:
        """What the rules say of a call with these needs."""
        return decide(requirements, self.rules(), self.approve)

    async def obtain(
        self,
        call: ToolCall,
        kind: RequestKind,
        requirements: tuple[Requirement, ...],
        is_as_judged: Callable[[], bool] = lambda: True,
    ) -> Refusal | None:
        """Return why the call may not run, if so; asks the user when the rules say so.

        After an answer `is_as_judged` says whether what was asked about is still what would run.
        """
        verdict = self.verdict(requirements)
        if verdict.action == "allow":
            return None
        if verdict.action == "deny":
            return Refusal("denied", f"denied: {verdict.reason}")
        need = next(need for need in requirements if need.permission == verdict.permission)
        answer = await self.ask(self._request(call, kind, need, requirements))
        if answer.resolution in ("once", "always"):
            return None if is_as_judged() else Refusal("failed", CHANGED_MEANWHILE)
        said = f" They said: {answer.text}" if answer.text else ""
        return Refusal("denied", f"The user rejected this call.{said}", ends_turn=True)

    async def offer(self, call: ToolCall, need: Requirement) -> Reply | None:
        """Ask about what no rule but one of that very name allows; None when nobody is to be asked.

        That is so when the session asks no one or consents to all, and when a rule denies it.
        """
        if self.approve != "ask" or self.verdict((need,)).action == "deny":
            return None
        return await self.ask_about(call, need)

    async def ask_about(self, call: ToolCall, need: Requirement) -> Reply:
        """Ask the user about a need, whatever the rules say of it."""
        return await self.ask(self._request(call, "approval", need, (need,)))

    async def put_question(self, call: ToolCall, text: str, choices: tuple[str, ...]) -> UserAnswer:
        """Ask what a tool wants to know; raises `ToolFailure` when the session asks no one."""
        if self.approve == "never":
            raise ToolFailure(NOBODY_THERE)
        title = one_line(text)
        detail = "" if title == text else text
        request = Request(
            self.new_id(), "question", title, item_id=call.id, detail=detail, choices=choices
        )
        answer = await self.ask(request)
        if answer.resolution == "answer":
            return UserAnswer(answer.text)
        return UserAnswer(None, answer.text)

    def _request(
        self,
        call: ToolCall,
        kind: RequestKind,
        need: Requirement,
        requirements: tuple[Requirement, ...],
    ) -> Request:
        """A request about one of the needs of a call, with all of what the call would do."""
        told = need if need.detail else next((one for one in requirements if one.detail), need)
        return Request(
            id=self.new_id(),
            kind=kind,
            title=one_line(need.title or call.title),
            item_id=call.id,
            permission=need.permission,
            subjects=need.subjects,
            always=patterns_for_always(need),
            detail=told.detail,
            detail_kind=told.detail_kind,
        )


def one_line(text: str) -> str:
    """Return `text` as a title: one line, not too long."""
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARS_MAX else line[: TITLE_CHARS_MAX - 1] + "…"
