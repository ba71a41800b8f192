"""Running the hooks of a moment: what comes of them together, and those that nobody waits for."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog
import trio

from tiller_daemon.config import Hook, ProjectHook
from tiller_daemon.hooks.process import HookProblem, Said, name_of, run_hook
from tiller_daemon.session.hooks import HookAnswers, HookInput, HookSandbox

log = structlog.get_logger()

BESIDE_MAX: Final = 16
"""How many hooks may run that nobody waits for; more than that are left out, and logged."""

MAY_DENY: Final = ("turn_start", "tool_before")
"""Moments at which a no comes before what it is about."""

Variables = Callable[[str], Mapping[str, str]]
"""Makes the environment of a process from the id of the call that it works for, or none."""


class HookRunner:
    """Implements the sessions' `Hooks`. `run` owns what nobody waits for."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self._beside = 0
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the hooks that run beside turns until cancelled; then they are ended."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def ask(
        self, hooks: Sequence[Hook], hook_input: HookInput, call_id: str, sandbox: HookSandbox
    ) -> HookAnswers:
        """Run hooks, one after the other, until one says no."""
        context: list[str] = []
        problems: list[str] = []
        for hook in hooks:
            name = _called(hook)
            try:
                said = await self._run(hook, hook_input, call_id, sandbox)
            except HookProblem as problem:
                problems.append(_failed(hook, str(problem)))
                if hook.on_failure == "deny":
                    denied = f"denied by the {name}, which failed: {problem}"
                    return HookAnswers(denied, (), tuple(problems))
                continue
            if said.denies and hook_input.on in MAY_DENY:
                reason = f": {said.reason}" if said.reason else ", which gave no reason"
                return HookAnswers(f"denied by the {name}{reason}", (), tuple(problems))
            if text := said.context or (said.reason if said.denies else ""):
                whose = "The" if isinstance(hook, ProjectHook) else "The user's"
                context.append(f"{whose} {name} says: {text}")
        return HookAnswers("", tuple(context), tuple(problems))

    def notify(self, hooks: Sequence[Hook], hook_input: HookInput, sandbox: HookSandbox) -> None:
        """Run hooks beside everything else; nobody waits for them."""
        for hook in hooks:
            if self._nursery is None or self._beside >= BESIDE_MAX:
                log.warning("hook_left_out", hook=name_of(hook), running=self._beside)
                continue
            self._beside += 1
            self._nursery.start_soon(self._run_beside, hook, hook_input, sandbox)

    async def _run(
        self, hook: Hook, hook_input: HookInput, call_id: str, sandbox: HookSandbox
    ) -> Said:
        of_project = isinstance(hook, ProjectHook)
        if of_project and sandbox.problem:
            raise HookProblem(sandbox.problem)
        encoded_input, directory = msgspec.json.encode(hook_input), Path(hook_input.workspace)
        confined = sandbox.confined if of_project else None
        return await run_hook(hook, encoded_input, directory, self._variables(call_id), confined)

    async def _run_beside(self, hook: Hook, hook_input: HookInput, sandbox: HookSandbox) -> None:
        try:
            await self._run(hook, hook_input, "", sandbox)
        except HookProblem as problem:
            log.warning("hook_failed", hook=name_of(hook), on=hook.on, reason=str(problem))
        except Exception:
            log.exception("hook_crashed", hook=name_of(hook), on=hook.on)
        finally:
            self._beside -= 1


def _called(hook: Hook) -> str:
    """A hook as the model and the user know it."""
    return f"{'project hook' if isinstance(hook, ProjectHook) else 'hook'} `{name_of(hook)}`"


def _failed(hook: Hook, problem: str) -> str:
    went = "it counts as a no" if hook.on_failure == "deny" else "the turn goes on without it"
    return f"The {_called(hook)} on {hook.on} failed: {problem}; {went}."
