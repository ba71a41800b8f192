"""Finds the command (`/NAME arguments`) and the sub-agents (`@NAME`) that an input's text calls.

Expands the command into its prompt, agent and model.
"""

import re
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.context.project_trust import trusted_workspace
from tiller_daemon.session.context.read_access import may_read, session_rules
from tiller_daemon.session.inputs.server_content import NO_CONTENT, ServerContent
from tiller_daemon.session.inputs.validation import check_input, input_data
from tiller_daemon.session.services import Services
from tiller_daemon.session.sub_agents.agents import (
    DEFAULT_AGENT,
    choose_agent,
    find_agent,
    list_agents,
)
from tiller_daemon.tools.suggestions import did_you_mean
from tiller_daemon.turn.user_tasks import mentioned
from tiller_daemon.workspace.commands import (
    Command,
    CommandCall,
    expand,
    find_command,
    list_commands,
    read_call,
)
from tiller_daemon.workspace.documents import MayRead
from tiller_protocol.codec import INPUT_BYTES_MAX
from tiller_protocol.items import QueuedInput
from tiller_protocol.ops import UserInput
from tiller_protocol.snapshot import Snapshot

T = TypeVar("T")

_MARKS: Final = re.compile(r"</(context(?:-\d+)?)>")


class ExpandedInput(NamedTuple):
    """An input after its command was expanded."""

    op: UserInput
    sub_agents: tuple[str, ...] = ()
    """The agents that work on the input before the model gets it."""


def expand_input(
    services: Services, snapshot: Snapshot, op: UserInput, content: ServerContent = NO_CONTENT
) -> ExpandedInput:
    """Return `op` with its slash command expanded, and the sub-agents that it calls.

    The input's agent and model override the command's agent and model. Names in `content` and in
    the input's context call nothing. Raises `RejectionError` for an unknown or invalid command, or
    a command whose text is too long.
    """
    if content.prompt is None:
        expanded = _expand_own(services, snapshot, op)
    else:
        expanded = ExpandedInput(structs.replace(op, text=content.prompt))
    added = (_marked(op.context), content.attached)
    text = "\n\n".join(filter(None, (expanded.op.text, *added)))
    whole = structs.replace(expanded.op, text=text, context="")
    if any(added):
        check_input(whole)
    return expanded._replace(op=whole)


def _marked(context: str) -> str:
    """Return an input's context between marks that the context does not contain."""
    if not context.strip():
        return ""
    taken = set(_MARKS.findall(context))
    names = (f"context-{number}" if number else "context" for number in count())
    name = next(name for name in names if name not in taken)
    return f"<{name}>\n{context.rstrip()}\n</{name}>"


def _expand_own(services: Services, snapshot: Snapshot, op: UserInput) -> ExpandedInput:
    """Expand the command and find the sub-agents that the user's own text calls."""
    call = read_call(op.text)
    command = call and _find(services, snapshot, call)
    if call is None or command is None:
        # The name of an existing path is no command, as in "/tmp is full".
        if call and not Path(f"/{call.name}").exists():
            raise _unknown(services, snapshot, op, call.name)
        return ExpandedInput(op, _mentioned(services, snapshot, op.text))
    expanded = _expanded(op, call, command)
    if not command.subtask:
        return ExpandedInput(expanded)
    # Without an agent of its own, the command may do no more than the session's agent.
    own = op.overrides.agent or snapshot.settings.agent or DEFAULT_AGENT
    agent = command.agent or own
    find_agent(services, snapshot.workspace, agent)
    return ExpandedInput(expanded, (agent,))


def edited_sub_agents(
    services: Services, snapshot: Snapshot, queued: QueuedInput, text: str
) -> tuple[str, ...]:
    """Return the sub-agents that a queued input calls after its text was changed to `text`.

    A sub-agent that the old text did not mention was named by a command, so it stays.
    """
    before = _mentioned(services, snapshot, queued.text)
    of_command = [agent for agent in queued.sub_agents if agent not in before]
    return tuple(dict.fromkeys((*of_command, *_mentioned(services, snapshot, text))))


def _mentioned(services: Services, snapshot: Snapshot, text: str) -> tuple[str, ...]:
    if "@" not in text:
        return ()
    agents = list_agents(services, snapshot.workspace)
    names = mentioned(text, agents)
    for name in names:
        choose_agent(agents, name)
    return names


def _find(services: Services, snapshot: Snapshot, call: CommandCall) -> Command | None:
    return _read(services, snapshot, partial(find_command, call.name))


def _unknown(services: Services, snapshot: Snapshot, op: UserInput, name: str) -> RejectionError:
    """Return the rejection of an input that calls an unknown command; it names similar commands."""
    known = _read(services, snapshot, list_commands)
    hint = did_you_mean(f"/{name}", [f"/{command.name}" for command in known])
    message = (
        f"There is no command /{name}.{hint} To list the commands: tiller commands. "
        "To send your input as text, put a space before the slash."
    )
    return RejectionError("invalid_settings", message, input_data(op))


def _read(
    services: Services,
    snapshot: Snapshot,
    read: Callable[[Path | None, Path, MayRead], T],
) -> T:
    """Return the result of `read` for the user's directory and the workspace, if it is trusted."""
    project = trusted_workspace(services, snapshot.workspace)
    readable = may_read(snapshot.workspace, session_rules(services, snapshot))
    return read(project, services.user.config_directory, readable)


def _expanded(op: UserInput, call: CommandCall, command: Command) -> UserInput:
    if command.problem:
        message = f"The command /{call.name} can't be used: {command.problem}."
        raise RejectionError("invalid_settings", message, input_data(op))
    text = expand(command.template, call.arguments, INPUT_BYTES_MAX)
    if text is None:
        message = (
            f"/{call.name} with these arguments expands to more than {INPUT_BYTES_MAX:,} bytes. "
            "Shorten the arguments, or put them into a file and give its path."
        )
        raise RejectionError("too_large", message, {"limit": INPUT_BYTES_MAX})
    overrides = structs.replace(
        op.overrides,
        # A subtask's model is for the sub-agent.
        agent=op.overrides.agent or (None if command.subtask else command.agent),
        model=op.overrides.model or command.model,
    )
    expanded = structs.replace(op, text=text, overrides=overrides)
    # The template may expand to empty text.
    check_input(expanded)
    return expanded
