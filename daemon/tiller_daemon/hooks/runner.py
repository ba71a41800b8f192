"""Runs the hooks for one moment, one after the other or in the background."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import trio

from tiller_daemon.config import Hook, ProjectHook
from tiller_daemon.hooks.process import HookOutput, HookProblem, hook_name, run_hook
from tiller_daemon.isolation import isolated
from tiller_daemon.session.hooks import HookAnswers, HookInput, HookSandbox, with_arguments

log = structlog.get_logger()

BACKGROUND_MAX: Final = 16
"""Maximum number of hooks that run in the background; further ones are skipped and logged."""

MAY_DENY: Final = ("turn_start", "tool_before", "turn_done")
"""Moments at which a denial can still prevent something."""

NO_REASON: Final = "it wants the turn to go on, but gives the model no reason"


class HookRunner:
    """Implements `session.hooks.Hooks`. `run` owns the hooks in the background."""

    def __init__(self, variables: Callable[[str], Mapping[str, str]]) -> None:
        """`variables` makes a process's environment from its call's id, or "" without a call."""
        self._variables = variables
        self._background_count = 0
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the hooks in the background until cancelled; then end them."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def ask(
        self, hooks: Sequence[Hook], hook_input: HookInput, call_id: str, sandbox: HookSandbox
    ) -> HookAnswers:
        """Run hooks one after the other until a hook denies; see `session.hooks.Hooks`."""
        context: list[str] = []
        problems: list[str] = []
        arguments: dict[str, Any] | None = None
        for hook in hooks:
            name = _described(hook)
            try:
                output = await self._run(hook, hook_input, call_id, sandbox)
                _check(output, hook)
            except HookProblem as problem:
                problems.append(_failure_message(hook, str(problem)))
                if hook.on_failure == "deny":
                    denied = f"denied by the {name}, which failed: {problem}"
                    return HookAnswers(denied, (), tuple(problems))
                continue
            if output.denies and hook_input.on in MAY_DENY:
                return HookAnswers(_denial(name, hook, output.reason), (), tuple(problems))
            if output.arguments is not None:
                # The next hook judges the arguments with which the call would really run.
                arguments = output.arguments
                hook_input = with_arguments(hook_input, arguments)
                shown = msgspec.json.encode(arguments).decode()
                context.append(f"The user's {name} changed this call's arguments to {shown}")
            # A denial that comes too late may still be useful to the model.
            if text := output.context or (output.reason if output.denies else ""):
                whose = "The" if isinstance(hook, ProjectHook) else "The user's"
                context.append(f"{whose} {name} says: {text}")
        return HookAnswers("", tuple(context), tuple(problems), arguments)

    def notify(self, hooks: Sequence[Hook], hook_input: HookInput, sandbox: HookSandbox) -> None:
        """Run hooks in the background; see `session.hooks.Hooks`."""
        for hook in hooks:
            if self._nursery is None or self._background_count >= BACKGROUND_MAX:
                log.warning("hook_left_out", hook=hook_name(hook), running=self._background_count)
                continue
            self._background_count += 1
            self._nursery.start_soon(self._run_in_background, hook, hook_input, sandbox)

    async def _run(
        self, hook: Hook, hook_input: HookInput, call_id: str, sandbox: HookSandbox
    ) -> HookOutput:
        of_project = isinstance(hook, ProjectHook)
        if of_project and sandbox.problem:
            raise HookProblem(sandbox.problem)
        payload, directory = msgspec.json.encode(hook_input), Path(hook_input.workspace)
        # A project hook is confined like a command; a hook of the user is the daemon's own program.
        given = self._variables(call_id)
        variables = {**(given if of_project else isolated(given)), **_own_variables()}
        enforced = sandbox.sandbox if of_project else None
        return await run_hook(hook, payload, directory, variables, enforced)

    async def _run_in_background(
        self, hook: Hook, hook_input: HookInput, sandbox: HookSandbox
    ) -> None:
        try:
            await self._run(hook, hook_input, "", sandbox)
        except HookProblem as problem:
            log.warning("hook_failed", hook=hook_name(hook), on=hook.on, reason=str(problem))
        except Exception:
            log.exception("hook_crashed", hook=hook_name(hook), on=hook.on)
        finally:
            self._background_count -= 1


def _check(output: HookOutput, hook: Hook) -> None:
    """Raise `HookProblem` if this hook must not print such output."""
    if output.denies and hook.on == "turn_done" and not output.reason:
        raise HookProblem(NO_REASON)
    if output.arguments is None:
        return
    if hook.on != "tool_before":
        raise HookProblem("it can't change `arguments`, because it is not on `tool_before`")
    if isinstance(hook, ProjectHook):
        raise HookProblem("it can't change `arguments`, because it is a project hook")


def _denial(name: str, hook: Hook, reason: str) -> str:
    if hook.on == "turn_done":
        whose = "The" if isinstance(hook, ProjectHook) else "The user's"
        return f"{whose} {name} wants you to go on: {reason}"
    return f"denied by the {name}" + (f": {reason}" if reason else ", which gave no reason")


def _described(hook: Hook) -> str:
    """Return the hook's description for the model and the user."""
    return f"{'project hook' if isinstance(hook, ProjectHook) else 'hook'} `{hook_name(hook)}`"


def _failure_message(hook: Hook, problem: str) -> str:
    effect = "this counts as a denial" if hook.on_failure == "deny" else "its result is ignored"
    return f"The {_described(hook)} on {hook.on} failed: {problem}; {effect}."


def _own_variables() -> dict[str, str]:
    """Return the variable by which a hook's `tiller` finds this daemon, if this daemon has one."""
    return {name: value for name, value in os.environ.items() if name == "TILLER_HOME"}
