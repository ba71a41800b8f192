"""Escalation: if the user agrees, a command that its sandbox stopped runs again in a looser one.

The model can't ask for an escalation: no tool has an argument for it. If a command seemed only
to read, but tried to write, it may get the session's sandbox. So may a build if that level is
enough; any other command may run outside.
"""

import re
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from tiller_daemon.policy.rules import BUILT_IN, Verdict
from tiller_daemon.policy.shell.levels import judge_line, may_run_outside
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.session.calls.command_paths import path_requirement, unsandboxed_requirement
from tiller_daemon.session.calls.permission import Permission
from tiller_daemon.session.calls.reasons import by_answer, reasons
from tiller_daemon.session.calls.turn_sandboxes import OUTSIDE, TurnSandboxes
from tiller_daemon.tools.base import Requirement, ToolResult
from tiller_protocol.items import Allowed, ToolCall

SAID_CHARS_MAX = 60
"""How much of a command's output a title quotes: it comes last, and must not pose as our words."""

RAN_OUTSIDE = (
    "[The command failed in the sandbox. With the user's approval it ran again outside. "
    "Its output there:]"
)
RAN_AGAIN = (
    "[The sandbox stopped the command. With the user's approval it ran again with more access. "
    "This is its output:]"
)
DECLINED = "[The user was asked to let the command {what}, and declined.{comment}]"


class Escalated(NamedTuple):
    """The permission to run a stopped command again."""

    level: SandboxLevel
    """Where the command runs again."""
    allowed: Allowed
    """Why it may run there."""
    seen: tuple[Path, ...] = ()
    """The paths that it may see in addition."""


class Escalation:
    """The escalations of one turn. Once the user has declined, the turn offers no more of them."""

    def __init__(self, permission: Permission, sandboxes: TurnSandboxes) -> None:
        self._permission = permission
        self._sandboxes = sandboxes
        self._declined = False

    async def offer(
        self, call: ToolCall, requirement: Requirement, tried: SandboxLevel, result: ToolResult
    ) -> ToolResult | Escalated:
        """Ask whether a command that was stopped in `tried` may run in a looser sandbox.

        `requirement` is the permission to run the command line. If the command may not run again,
        returns its final result.
        """
        if self._declined:
            return result
        (command,) = requirement.subjects
        if result.missed:
            return await self._offer_to_show(call, command, tried, result)
        # Offer the next looser sandbox if it is enough, as running outside is the last resort.
        if tried is SandboxLevel.BUILD and self._sandboxes.session_allows_more(command, result):
            level, what = SandboxLevel.SESSION, "do more than build"
            warning = "Allow a command to do more than build"
            wanted = structs.replace(requirement, warning=warning)
        elif self._sandboxes.limits.are_set:
            # Outside, nothing would hold the command to the limits.
            return result
        else:
            level, what = SandboxLevel.OUTSIDE, "run outside the sandbox"
            wanted = unsandboxed_requirement(command, "Run OUTSIDE the sandbox")
        reply = await self._permission.offer(call, quoting(wanted, result))
        if reply is None:
            return result
        if reply.approves:
            return Escalated(level, by_answer(wanted.permission, command, reply))
        return self._decline(result, what, reply.text)

    async def _offer_to_show(
        self, call: ToolCall, command: str, tried: SandboxLevel, result: ToolResult
    ) -> ToolResult | Escalated:
        """Ask whether a command that failed may see the path that it missed."""
        path = result.missed
        wanted = path_requirement(OUTSIDE, path, f"{path} for {command}", "Show a hidden path")
        reply = await self._permission.offer(call, wanted)
        if reply is None:
            return result
        if reply.approves:
            return Escalated(tried, by_answer(OUTSIDE, path, reply), (Path(path),))
        return self._decline(result, f"read {path}", reply.text)

    async def permit_writing(
        self, call: ToolCall, requirement: Requirement, result: ToolResult
    ) -> ToolResult | Escalated:
        """Ask whether a command that seemed only to read may write, and where.

        If it may not, returns its final result.
        """
        (command,) = requirement.subjects
        # Judge the command as if no sandbox worked, so that only explicit rules can allow it.
        rules = (*BUILT_IN, *self._sandboxes.rules())
        line = judge_line(command, requirement.permission, rules, None)
        verdict = Verdict(line.action, line.reason, requirement.permission, command, line.rule)
        permissions = self._sandboxes.context.permissions
        if permissions.read_only or permissions.sandbox.mode == "read_only":
            return result
        if verdict.action == "deny":
            return result
        if self._sandboxes.not_enforced(SandboxLevel.SESSION):
            return result
        if result.missed and not self._declined:
            return await self._offer_to_show(call, command, SandboxLevel.READ_ONLY, result)
        # Where nothing enforces the mode, a rule for the command is not enough; see `must_ask`.
        if self._sandboxes.asks and not may_run_outside(command, rules):
            requirement = unsandboxed_requirement(command, requirement.warning)
            verdict = structs.replace(verdict, action="ask")
        if verdict.action == "allow" or self._permission.approve == "always":
            by_rules = structs.replace(verdict, parts=(verdict,))
            reason = reasons(by_rules, self._permission.granted())[0]
            return Escalated(SandboxLevel.SESSION, reason)
        if self._permission.approve == "never" or self._declined:
            return result
        level = SandboxLevel.SESSION
        wanted = structs.replace(requirement, warning="Allow a command that tried to write")
        # git's configuration stays read-only in every sandbox, and so do most other places.
        is_kept = re.search(r"\.git/(?:\S*/)?config", result.stopped_by)
        is_kept = is_kept or self._sandboxes.is_out_of_reach(command, result)
        if is_kept and not self._sandboxes.limits.are_set:
            level = SandboxLevel.OUTSIDE
            wanted = unsandboxed_requirement(command, "Run OUTSIDE the sandbox")
        reply = await self._permission.ask_about(call, quoting(wanted, result))
        if reply is None:
            return result
        if reply.approves:
            return Escalated(level, by_answer(wanted.permission, command, reply))
        return self._decline(result, "write", reply.text)

    def _decline(self, result: ToolResult, what: str, text: str) -> ToolResult:
        self._declined = True
        comment = f" They said: {text}" if text else ""
        note = DECLINED.format(what=what, comment=comment)
        return structs.replace(result, output=f"{result.output}\n{note}")


def quoting(requirement: Requirement, result: ToolResult) -> Requirement:
    """Let the title of a stopped command end with the line of output that shows why."""
    said = " ".join(result.stopped_by.split()).replace('"', "'")[:SAID_CHARS_MAX]
    title = f'{" ".join(requirement.subjects)} (its output says: "{said}")'
    return structs.replace(requirement, title=title)
