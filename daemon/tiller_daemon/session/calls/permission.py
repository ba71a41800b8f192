"""Obtains permission for a call from the rules or the user, and asks the user tools' questions."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct, structs

from tiller_daemon.config.lasting_rules import WEAKENING
from tiller_daemon.policy.rules import PROTECTED_PATH, Verdict, decide, patterns_for_always
from tiller_daemon.policy.shell.levels import NETWORK, UNSANDBOXED, may_run_outside
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.session.calls.reasons import reasons
from tiller_daemon.session.requests import IsAllowed, Reply
from tiller_daemon.tools.base import Requirement, ToolFailure, UserAnswer
from tiller_daemon.turn.ports import REJECTED, Refusal
from tiller_protocol.items import Allowed, Request, RequestKind, ToolCall
from tiller_protocol.settings import Approve, Rule

TITLE_CHARS_MAX = 200
"""Longest title of a request, which frontends show on one line."""

REQUEST_BYTES_MAX = 256 * 1024
"""Longest UTF-8 text of a request: some 5,000 lines of code, more than a person wants to read."""

TOO_LARGE = (
    "not run: it needs the user's approval, and the user has to see all of it, but its text has "
    f"more than {REQUEST_BYTES_MAX} bytes. Do it in several smaller steps."
)

STRONGEST = (UNSANDBOXED, PROTECTED_PATH, NETWORK, "external_directory", "read")
"""Permissions by how much they allow. A question is about the first of them that it needs, and all
other permissions come after these."""

CHANGED_MEANWHILE = (
    "not run: this call uses files that changed while it waited for approval. Look again, then "
    "repeat the call."
)

RUN_ALTHOUGH = "Run although {problem}"
"""The warning of a request that would not be necessary in another workspace."""

NO_USER = (
    "Nobody can answer: this session never asks the user. Decide yourself, and say what you chose."
)


class Permission(Struct, frozen=True):
    """Decides about the calls of one turn; if needed, asks the user through any frontend."""

    workspace: str
    """The absolute path of the workspace."""
    approve: Approve
    """The setting `approve`: whether the user is asked, and the answer if they are not."""
    rules: Callable[[], tuple[Rule, ...]]
    """Returns the current rules, because the user's grants apply at once."""
    ask: Callable[[Request, IsAllowed], Awaitable[Reply]]
    """Opens a request and returns how it was resolved; see `OpenRequests.ask`."""
    new_id: Callable[[], str]
    """Makes the ids of requests."""
    granted: Callable[[], tuple[Rule, ...]] = tuple
    """Returns those current rules that belong to the session itself."""
    checkout_of: Callable[[str], str] = str
    """Returns, for a workspace in a worktree, the same place in its checkout."""

    def verdict(self, requirements: tuple[Requirement, ...]) -> Verdict:
        """Return the rules' verdict on a call with these requirements."""
        return decide(requirements, self.rules(), self.approve)

    def unasked(self, requirements: tuple[Requirement, ...]) -> tuple[Allowed, ...] | None:
        """Return why a call may run without a question; None if it needs a question."""
        verdict = self.verdict(requirements)
        return reasons(verdict, self.granted()) if verdict.action == "allow" else None

    async def obtain(
        self,
        call: ToolCall,
        kind: RequestKind,
        requirements: tuple[Requirement, ...],
        is_as_judged: Callable[[], bool] = lambda: True,
    ) -> Refusal | tuple[Allowed, ...]:
        """Return why the call may run, or why not; ask the user if the rules require it.

        Files may change before the user answers. `is_as_judged` checks that the call still needs
        only the permissions that the user approved.
        """
        verdict = self.verdict(requirements)
        if verdict.action == "allow":
            return reasons(verdict, self.granted())
        if verdict.action == "deny":
            return Refusal("denied", f"denied: {verdict.reason}")
        asked = [r for r in requirements if self.verdict((r,)).action == "ask"]
        request = self._request(call, kind, list(map(self._with_reason, asked)), requirements)
        if not _can_be_shown(request):
            return Refusal("failed", TOO_LARGE)
        answer = await self.ask(request, lambda: self._is_allowed(requirements))
        if answer.approves:
            why = reasons(verdict, self.granted(), answer)
            # The approval was for the files as they were then.
            return why if is_as_judged() else Refusal("failed", CHANGED_MEANWHILE)
        if answer.gives_reason:
            return Refusal("denied", f"rejected by the user: {answer.text.strip()}")
        return Refusal("denied", "rejected by the user", REJECTED)

    async def offer(self, call: ToolCall, requirement: Requirement) -> Reply | None:
        """Ask for a permission that only an explicit rule or the user can grant.

        Returns None if the user is not asked, because `approve` is `never` or `always`, because a
        rule denies the permission, or because the call is too large to show.
        """
        if self.approve != "ask" or self.verdict((requirement,)).action == "deny":
            return None
        return await self.ask_about(call, requirement)

    async def ask_about(self, call: ToolCall, requirement: Requirement) -> Reply | None:
        """Ask the user about one requirement, even if a sandbox would make that unnecessary.

        Returns None if the call is too large to show.
        """
        request = self._request(call, "approval", (requirement,), (requirement,))
        if not _can_be_shown(request):
            return None
        by_rules = structs.replace(requirement, loosest_unasked=None)
        return await self.ask(request, lambda: self._is_allowed((by_rules,)))

    async def put_question(self, call: ToolCall, text: str, choices: tuple[str, ...]) -> UserAnswer:
        """Ask the user a tool's question; raises `ToolFailure` if it can't be put."""
        if self.approve == "never":
            raise ToolFailure(NO_USER)
        title = one_line(text)
        # The title may be cut, but the user must see the whole question.
        detail = "" if title == text else text
        request = Request(
            self.new_id(), "question", title, item_id=call.id, detail=detail, choices=choices
        )
        if not _can_be_shown(request):
            raise ToolFailure(TOO_LARGE)
        answer = await self.ask(request, lambda: False)
        if answer.resolution == "answer":
            return UserAnswer(answer.text)
        return UserAnswer(None, answer.text)

    def _with_reason(self, requirement: Requirement) -> Requirement:
        """Warn if approval is needed only because of the workspace."""
        in_sandbox = structs.replace(requirement, loosest_unasked=SandboxLevel.BUILD)
        if not requirement.problem or self.verdict((in_sandbox,)).action != "allow":
            return requirement
        warning = RUN_ALTHOUGH.format(problem=requirement.problem)
        return structs.replace(requirement, title=" ".join(requirement.subjects), warning=warning)

    def _is_allowed(self, requirements: tuple[Requirement, ...]) -> bool:
        """Whether the rules allow the call now; the user may have granted more since then."""
        # Outside the sandbox nothing confines a command, so a rule must spell the command out.
        outside = [r for r in requirements if r.permission == UNSANDBOXED]
        commands = [command for requirement in outside for command in requirement.subjects]
        if not all(may_run_outside(command, self.rules()) for command in commands):
            return False
        others = [r for r in requirements if r not in outside]
        return decide(others, self.rules(), "ask").action == "allow"

    def _request(
        self,
        call: ToolCall,
        kind: RequestKind,
        asked: Sequence[Requirement],
        requirements: tuple[Requirement, ...],
    ) -> Request:
        """Return a request about the requirements `asked`, with details of the whole call.

        The answer gives all permissions that are asked about, so the title has all their warnings.
        The answer `always` makes a rule for the strongest one only.
        """
        first, *others = sorted(asked, key=_rank)
        shown = next((r for r in (first, *others, *requirements) if r.detail), first)
        patterns = patterns_for_always(first)
        warnings = [r.warning for r in (first, *others) if r.warning]
        whole_title = ": ".join([*warnings, first.title or call.title])
        title = one_line(whole_title)
        also = dict.fromkeys(r.permission for r in others if r.permission != first.permission)
        return Request(
            id=self.new_id(),
            kind=kind,
            title=title,
            item_id=call.id,
            permission=first.permission,
            subjects=tuple(dict.fromkeys(s for r in (first, *others) for s in r.subjects)),
            always=patterns,
            # A call that repeats itself is a question about this turn only.
            always_here=self._place(first) if patterns and kind == "approval" else "",
            # The title may be cut, but the user must see all of it.
            detail=shown.detail or ("" if title == whole_title else whole_title),
            detail_kind=shown.detail_kind if shown.detail else "text",
            also=tuple(also),
        )

    def _place(self, requirement: Requirement) -> str:
        """Return for which place a lasting rule is stored: in a worktree, for its checkout."""
        if requirement.permission in WEAKENING:
            return self.workspace
        return self.checkout_of(self.workspace)


def _rank(requirement: Requirement) -> int:
    """The place of a requirement in a request, from 0 for the strongest permission."""
    name = requirement.permission
    return STRONGEST.index(name) if name in STRONGEST else len(STRONGEST)


def _can_be_shown(request: Request) -> bool:
    texts = {request.detail, *request.subjects, *request.choices}
    return sum(len(text.encode(errors="replace")) for text in texts) <= REQUEST_BYTES_MAX


def one_line(text: str) -> str:
    """Return `text` as a title: on one line, cut to `TITLE_CHARS_MAX`."""
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARS_MAX else line[: TITLE_CHARS_MAX - 1] + "…"
