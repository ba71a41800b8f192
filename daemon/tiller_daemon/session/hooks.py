"""Gives a turn's hooks their input at each moment, and applies their answers.

A hook can only tighten the policy: it may deny a call that the policy allows, but never allow a
call that the policy denies. The package `hooks` runs the commands.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import Struct, structs

from tiller_daemon.config import Hook, HookMoment, ProjectHook
from tiller_daemon.policy import globs
from tiller_daemon.sandbox.base import CommandSandbox
from tiller_daemon.turn.context import TurnContext
from tiller_daemon.turn.ports import Emit, HookDecision
from tiller_protocol.events import TurnEnded, WarningRaised
from tiller_protocol.items import Request, ToolCall

CONTINUED_MAX: Final = 8
"""How often hooks can make one turn go on, because a hook that is never satisfied must not make it
run for ever."""


class HookToolCall(Struct, frozen=True, omit_defaults=True):
    """A tool call, with its result if it has one."""

    name: str
    """The name of the tool."""
    arguments: Any
    """The decoded JSON, or the model's text if it is not JSON."""
    call_id: str
    """The id of the call's item."""
    effect: str
    """`read` or `write`."""
    title: str = ""
    """What the call works on, in one line."""
    failed: bool | None = None
    """Whether the call failed; absent before the call has run."""
    output: str = ""
    """The result for the model; empty before the call has run."""


class HookRequest(Struct, frozen=True, omit_defaults=True):
    """A request to the user."""

    id: str
    """The request's ULID."""
    kind: str
    """`approval`, `question` or `doom_loop`."""
    title: str
    """The question in one line."""
    permission: str = ""
    """The permission in question; empty if the model asks a question."""
    subjects: tuple[str, ...] = ()
    """The paths, command lines or addresses that the permission is for."""
    detail: str = ""
    """Details beyond the title, such as a diff or the whole question."""
    choices: tuple[str, ...] = ()
    """The answers that a question offers."""


class HookCompaction(Struct, frozen=True, omit_defaults=True):
    """A compaction of the history."""

    tokens: int
    """Estimated current size of the history in tokens."""
    context_window: int
    """Size of the model's context window in tokens."""
    summary: str = ""
    """The summary that replaced the history; empty before the compaction."""


class HookMomentInput(Struct, frozen=True, omit_defaults=True):
    """The fields of a hook's input that are present at every moment."""

    on: HookMoment
    """The moment at which the hook runs."""
    session_id: str
    """The session's ULID."""
    turn_id: str
    """The turn's ULID; empty on `session_end`."""
    workspace: str
    """The absolute path of the workspace, in which the hook runs."""
    agent: str
    """The name of the turn's agent."""
    model: str
    """Provider and model, as the user writes them."""


class HookInput(HookMomentInput, frozen=True, omit_defaults=True):
    """The JSON on a hook's standard input. Fields with default values are left out."""

    input: str = ""
    """The user's text, on `turn_start` and `session_start`."""
    tool: HookToolCall | None = None
    """The call, on `tool_before` and `tool_after`."""
    request: HookRequest | None = None
    """The request, on `request`."""
    outcome: str = ""
    """How the turn ended, on `turn_end` and `sub_agent_end`; on `session_end`, `archived` or
    `deleted`."""
    last_message: str = ""
    """The model's last message, on `turn_done`, `turn_end` and `sub_agent_end`."""
    continued: int = 0
    """How often hooks have made the turn go on, on `turn_done`."""
    compaction: HookCompaction | None = None
    """The compaction, on `compaction_before` and `compaction_after`."""
    owner: str = ""
    """The session that the sub-agent worked for, on `sub_agent_end`."""


class HookAnswers(Struct, frozen=True):
    """The answers of all hooks of one moment."""

    denied: str = ""
    """The reason if a hook denies the call or turn; empty otherwise."""
    context: tuple[str, ...] = ()
    """Texts for the model."""
    problems: tuple[str, ...] = ()
    """Descriptions of failures, as sentences for the user."""
    arguments: dict[str, Any] | None = None
    """The arguments to use instead; None if no hook changes them."""


class HookSandbox(NamedTuple):
    """The sandbox for a project's hooks. The user's own hooks run without a sandbox."""

    sandbox: CommandSandbox | None = None
    """The sandbox; None if the user lets the project's commands run without one."""
    problem: str = ""
    """Why the hooks can't be run, as a clause; empty if they can."""


class Hooks(Protocol):
    """Runs hooks: a user's hooks without a sandbox, a project's hooks in the given sandbox."""

    async def ask(
        self, hooks: Sequence[Hook], hook_input: HookInput, call_id: str, sandbox: HookSandbox
    ) -> HookAnswers:
        """Run hooks one after the other until a hook denies.

        On cancellation the running hook is ended with all its processes.
        """
        ...

    def notify(self, hooks: Sequence[Hook], hook_input: HookInput, sandbox: HookSandbox) -> None:
        """Start hooks without waiting for them; their answers are ignored."""
        ...


class TurnHooks:
    """The hooks of one turn. `sandbox` returns the current sandbox for the project's hooks."""

    def __init__(
        self,
        hooks: Hooks,
        configured: tuple[Hook, ...],
        context: TurnContext,
        emit: Emit,
        sandbox: Callable[[], HookSandbox],
    ) -> None:
        self._hooks = hooks
        self._configured = configured
        self._sandbox = sandbox
        self._context = context
        self._emit = emit
        self._before: dict[str, str] = {}
        self._continued = 0

    def observes(self, tool: str) -> bool:
        """Whether any hook runs before or after calls of this tool."""
        return bool(
            self._configured_for("tool_before", tool) or self._configured_for("tool_after", tool)
        )

    async def turn_started(self, given: str) -> HookDecision:
        """Run the hooks on the start of a turn; see `turn.ports.Hooks`.

        If they let a session's first turn begin, the hooks on the start of the session follow.
        """
        turn = await self._ask("turn_start", input=given)
        if turn.denied or self._context.before.steps:
            return HookDecision(turn.denied, _joined(turn))
        session = await self._ask("session_start", input=given)
        return HookDecision("", "\n\n".join(filter(None, (_joined(session), _joined(turn)))))

    async def turn_done(self, last_message: str) -> str:
        """Run the hooks on a turn that has nothing left to do; see `turn.ports.Hooks`.

        They can make the turn go on up to `CONTINUED_MAX` times.
        """
        answers = await self._ask("turn_done", last_message=last_message, continued=self._continued)
        if not answers.denied:
            return ""
        if self._continued >= CONTINUED_MAX:
            message = (
                f"Hooks have extended this turn {CONTINUED_MAX} times, so it ends now. The last "
                f"reason to extend it was: {answers.denied}"
            )
            await self._emit(WarningRaised("hook_limit", message))
            return ""
        self._continued += 1
        return answers.denied

    async def before_compaction(self, tokens: int) -> str:
        """Run the hooks before a compaction; see `turn.ports.Hooks`."""
        compaction = HookCompaction(tokens, self._context.model.context_window)
        return _joined(await self._ask("compaction_before", compaction=compaction))

    async def after_compaction(self, summary: str, tokens: int) -> str:
        """Run the hooks after a compaction; see `turn.ports.Hooks`."""
        compaction = HookCompaction(tokens, self._context.model.context_window, summary)
        return _joined(await self._ask("compaction_after", compaction=compaction))

    async def before(self, call: ToolCall) -> HookAnswers:
        """Run the hooks before a call; their answers may deny the call or change its arguments.

        Text that the hooks add for the model follows the call's result.
        """
        if not (hooks := self._configured_for("tool_before", call.name)):
            return HookAnswers()
        answers = await self._run(hooks, self._input("tool_before", tool=_tool_call(call)), call.id)
        if answers.context:
            # There is no result yet to which the text could be added.
            self._before[call.id] = _context_text(answers)
        return answers

    async def after(self, call: ToolCall, output: str, *, failed: bool) -> str:
        """Run the hooks after a call; return the text that follows its result."""
        added_before = self._before.pop(call.id, "")
        hooks = self._configured_for("tool_after", call.name)
        # The user ran the command directly and sees its result.
        if call.by_user or not hooks:
            return added_before
        hook_input = self._input("tool_after", tool=_tool_call(call, output, failed=failed))
        return added_before + _context_text(await self._run(hooks, hook_input, call.id))

    def turn_ended(self, ended: TurnEnded) -> None:
        """Start the hooks on the end of a turn."""
        self._start("turn_end", outcome=ended.outcome, last_message=ended.last_message)

    def sub_agent_ended(self, ended: TurnEnded, owner: str) -> None:
        """Start the hooks on the end of a sub-agent's turn; it worked for the session `owner`."""
        self._start(
            "sub_agent_end", outcome=ended.outcome, last_message=ended.last_message, owner=owner
        )

    def session_ended(self, how: str) -> None:
        """Start the hooks on the end of the session, which was `archived` or `deleted`."""
        self._start("session_end", turn_id="", outcome=how)

    def request_opened(self, request: Request) -> None:
        """Start the hooks on a request to the user."""
        shown = msgspec.convert(request, HookRequest, from_attributes=True)
        self._start("request", request=shown)

    async def _ask(self, moment: HookMoment, **fields: Any) -> HookAnswers:  # noqa: ANN401 - of HookInput
        """Run the hooks on a moment other than a call, and wait for them."""
        if not (hooks := self._configured_for(moment)):
            return HookAnswers()
        return await self._run(hooks, self._input(moment, **fields), "")

    def _start(self, moment: HookMoment, **fields: Any) -> None:  # noqa: ANN401 - of HookInput
        if hooks := self._configured_for(moment):
            self._hooks.notify(hooks, self._input(moment, **fields), self._sandbox_for(hooks))

    def _configured_for(self, moment: HookMoment, tool: str = "") -> tuple[Hook, ...]:
        """Return the hooks on a moment; with a `tool`, only hooks that match this tool."""
        return tuple(
            hook
            for hook in self._configured
            if hook.on == moment and (not tool or globs.matches(hook.tool, tool))
        )

    async def _run(self, hooks: Sequence[Hook], hook_input: HookInput, call_id: str) -> HookAnswers:
        answers = await self._hooks.ask(hooks, hook_input, call_id, self._sandbox_for(hooks))
        if answers.problems:
            await self._emit(*(WarningRaised("hook_failed", text) for text in answers.problems))
        return answers

    def _sandbox_for(self, hooks: Sequence[Hook]) -> HookSandbox:
        """Return the project's sandbox if any hook needs it, because making it costs disk reads."""
        of_project = any(isinstance(hook, ProjectHook) for hook in hooks)
        return self._sandbox() if of_project else HookSandbox()

    def _input(self, moment: HookMoment, **fields: Any) -> HookInput:  # noqa: ANN401 - of HookInput
        context = self._context
        return HookInput(
            moment,
            context.session_id,
            fields.pop("turn_id", context.turn_id),
            context.workspace,
            context.agent,
            context.model.name,
            **fields,
        )


def with_arguments(hook_input: HookInput, arguments: dict[str, Any]) -> HookInput:
    """Return `hook_input` with other arguments for its call."""
    assert hook_input.tool
    return structs.replace(hook_input, tool=structs.replace(hook_input.tool, arguments=arguments))


def _joined(answers: HookAnswers) -> str:
    return "\n\n".join(answers.context)


def _tool_call(call: ToolCall, output: str = "", *, failed: bool | None = None) -> HookToolCall:
    try:
        arguments: Any = msgspec.json.decode(call.rewritten_arguments or call.arguments or "{}")
    except msgspec.DecodeError:
        # Models do send broken JSON, which hooks should see as it is.
        arguments = call.arguments
    return HookToolCall(call.name, arguments, call.id, call.effect, call.title, failed, output)


def _context_text(answers: HookAnswers) -> str:
    return "".join(f"\n\n{text}" for text in answers.context)
