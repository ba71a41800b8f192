"""Hooks as a turn sees them: what they are told at which moment, and what becomes of what they say.

A hook can only tighten: it may say no to what the policy would let pass, never yes to what it would
not. How the commands are run is in the room `hooks`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from tiller_daemon.config import Hook, HookMoment, ProjectHook
from tiller_daemon.policy import globs
from tiller_daemon.sandbox.confinement import Confined
from tiller_daemon.turn.context import TurnContext
from tiller_daemon.turn.ports import Emit, HookSaid
from tiller_protocol.events import TurnEnded, WarningRaised
from tiller_protocol.items import Request, ToolCall


class HookToolCall(Struct, frozen=True, omit_defaults=True):
    """A call, and its result when it has one. `arguments` are as the model gave them."""

    name: str
    arguments: Any
    call_id: str
    effect: str
    title: str = ""
    failed: bool | None = None
    output: str = ""


class HookRequest(Struct, frozen=True, omit_defaults=True):
    """What the user is asked."""

    id: str
    kind: str
    title: str
    permission: str = ""
    subjects: tuple[str, ...] = ()
    detail: str = ""
    choices: tuple[str, ...] = ()


class HookInput(Struct, frozen=True, omit_defaults=True):
    """What a hook is told, as JSON on its standard input; empty fields are left out."""

    on: HookMoment
    session_id: str
    turn_id: str
    workspace: str
    agent: str
    model: str
    input: str = ""
    tool: HookToolCall | None = None
    request: HookRequest | None = None
    outcome: str = ""
    last_message: str = ""


class HookAnswers(Struct, frozen=True):
    """What all hooks of a moment said: a reason for a no, text for the model, what went wrong."""

    denied: str = ""
    context: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class HookSandbox(NamedTuple):
    """What holds a project's hooks: a sandbox, or none as the user lets its commands run in none.

    With a `problem`, a clause, they are not run.
    """

    confined: Confined | None = None
    problem: str = ""


class Hooks(Protocol):
    """Who runs hooks: the user's as they are, a project's in its `sandbox`."""

    async def ask(
        self, hooks: Sequence[Hook], told: HookInput, call_id: str, sandbox: HookSandbox
    ) -> HookAnswers:
        """Run hooks, one after the other, until one says no.

        Cancelled, it ends what runs; no process is left.
        """
        ...

    def notify(self, hooks: Sequence[Hook], told: HookInput, sandbox: HookSandbox) -> None:
        """Run hooks beside everything else; nobody waits for them."""
        ...


class TurnHooks:
    """The hooks of one turn. `sandbox` says what holds those of the project now."""

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

    def observes(self, tool: str) -> bool:
        """Whether a call of this tool is told to any hook."""
        return bool(
            self._configured_for("tool_before", tool) or self._configured_for("tool_after", tool)
        )

    async def turn_started(self, given: str) -> HookSaid:
        """Tell those on the start of a turn; see `turn.ports.Hooks`."""
        if not (hooks := self._configured_for("turn_start")):
            return HookSaid()
        answers = await self._run(hooks, self._input("turn_start", input=given), "")
        return HookSaid(answers.denied, "\n\n".join(answers.context))

    async def before(self, call: ToolCall) -> str:
        """Tell those before a call; returns the reason why it may not run, else nothing.

        What they add is told with the call's result.
        """
        if not (hooks := self._configured_for("tool_before", call.name)):
            return ""
        answers = await self._run(hooks, self._input("tool_before", tool=_tool_call(call)), call.id)
        if answers.context:
            self._before[call.id] = _context_text(answers)
        return answers.denied

    async def after(self, call: ToolCall, output: str, *, failed: bool) -> str:
        """Tell those after a call; returns what the model is told behind its result."""
        told_before = self._before.pop(call.id, "")
        hooks = self._configured_for("tool_after", call.name)
        if call.by_user or not hooks:
            return told_before
        told = self._input("tool_after", tool=_tool_call(call, output, failed=failed))
        return told_before + _context_text(await self._run(hooks, told, call.id))

    def turn_ended(self, ended: TurnEnded) -> None:
        """Notify those on the end of a turn."""
        if hooks := self._configured_for("turn_end"):
            outcome, said = ended.outcome, ended.last_message
            told = self._input("turn_end", outcome=outcome, last_message=said)
            self._hooks.notify(hooks, told, self._sandbox_for(hooks))

    def request_opened(self, request: Request) -> None:
        """Notify those on a request: the user is asked something."""
        if hooks := self._configured_for("request"):
            asked = HookRequest(
                request.id,
                request.kind,
                request.title,
                request.permission,
                request.subjects,
                request.detail,
                request.choices,
            )
            self._hooks.notify(
                hooks, self._input("request", request=asked), self._sandbox_for(hooks)
            )

    def _configured_for(self, moment: HookMoment, tool: str = "") -> tuple[Hook, ...]:
        """The hooks on a moment, of this tool if it is one of a call."""
        on = (hook for hook in self._configured if hook.on == moment)
        return tuple(hook for hook in on if not tool or globs.matches(hook.tool, tool))

    async def _run(self, hooks: Sequence[Hook], told: HookInput, call_id: str) -> HookAnswers:
        answers = await self._hooks.ask(hooks, told, call_id, self._sandbox_for(hooks))
        if answers.problems:
            await self._emit(*(WarningRaised("hook_failed", one) for one in answers.problems))
        return answers

    def _sandbox_for(self, hooks: Sequence[Hook]) -> HookSandbox:
        """What holds those of the project, if they are any; it takes a look at the disk."""
        return (
            self._sandbox()
            if any(isinstance(hook, ProjectHook) for hook in hooks)
            else HookSandbox()
        )

    def _input(self, moment: HookMoment, **fields: Any) -> HookInput:  # noqa: ANN401 - fields of Told
        context = self._context
        return HookInput(
            moment,
            context.session_id,
            context.turn_id,
            context.workspace,
            context.agent,
            context.model.name,
            **fields,
        )


def _tool_call(call: ToolCall, output: str = "", *, failed: bool | None = None) -> HookToolCall:
    try:
        arguments: Any = msgspec.json.decode(call.arguments or "{}")
    except msgspec.DecodeError:
        arguments = call.arguments
    return HookToolCall(call.name, arguments, call.id, call.effect, call.title, failed, output)


def _context_text(answers: HookAnswers) -> str:
    return "".join(f"\n\n{one}" for one in answers.context)
