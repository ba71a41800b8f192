"""Finds the tool for a call among the tools of one turn, and validates the call's arguments.

Implements the turn's `ToolRuntime`. `tool_call` runs the prepared calls.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from tiller_daemon.policy import globs
from tiller_daemon.session.calls.arguments import BadArguments
from tiller_daemon.session.calls.offered_tools import find_tool, unknown_tool
from tiller_daemon.session.calls.tool_call import PreparedToolCall
from tiller_daemon.session.calls.turn_tools import TurnTools
from tiller_daemon.tools.base import Requirement, Tool, ToolFailure
from tiller_daemon.turn.decisions import DOOM_LOOP, repetition_subject
from tiller_daemon.turn.ports import Refusal
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.items import ToolCall


class Toolbox(Struct, frozen=True):
    """The tools of one turn by name, and the services that their calls share."""

    tools: Mapping[str, Tool]
    """The tools for the model's calls."""
    tools_of_user: Mapping[str, Tool]
    """The tools that only the user's calls may use, because they are not offered to the agent."""
    shared: TurnTools

    def prepare(self, call: ToolCall) -> PreparedToolCall | Refusal:
        """Find the tool and validate the arguments; return a refusal if the call is invalid."""
        tool = find_tool(self.tools, call.name)
        if tool is None and call.by_user:
            tool = self.tools_of_user.get(call.name)
        if tool is None:
            return Refusal("invalid", unknown_tool(call.name, self.tools))
        try:
            arguments, requirements = self.shared.examine(tool, call.arguments)
        except BadArguments as bad:
            return Refusal("invalid", str(bad))
        except ToolFailure as failure:
            return Refusal("failed", str(failure))
        return PreparedToolCall(self.shared, tool, arguments, requirements, call)

    def savepoint(self) -> Callable[[], None]:
        """Return a function that drops everything that calls record about files from now on."""
        return self.shared.environments.files.versions.remember()

    async def permit_repetition(self, call: ToolCall) -> Refusal | None:
        """Ask whether a call that keeps repeating may go on; a refusal ends the turn.

        The answer `always` covers only this tool with these arguments.
        """
        tool = self.tools.get(call.name)
        if tool and tool.polls:
            return None
        title = f"Go on although the same arguments were given repeatedly to {call.name}"
        subject = repetition_subject(call)
        always = (globs.escape(subject),)
        requirement = Requirement(DOOM_LOOP, (subject,), always, title=title, detail=call.arguments)
        verdict = self.shared.permission.verdict((requirement,))
        if verdict.action == "deny":
            message = (
                f"`{call.name}` was called repeatedly with the same arguments. {verdict.reason}"
            )
            ending = ErrorInfo(DOOM_LOOP, message)
            return Refusal("denied", f"denied: {verdict.reason}", ending)
        outcome = await self.shared.permission.obtain(call, DOOM_LOOP, (requirement,))
        return outcome if isinstance(outcome, Refusal) else None
