"""Slash commands: expands `/NAME arguments` into the prompt, agent and model of the command."""

from functools import partial

from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.project_trust import trusted_workspace
from tiller_daemon.session.read_access import read_with_rules, session_rules
from tiller_daemon.session.services import Services
from tiller_daemon.session.validation import check_input, input_data
from tiller_daemon.workspace.commands import expand, find_command, read_call
from tiller_protocol.codec import INPUT_BYTES_MAX
from tiller_protocol.ops import UserInput
from tiller_protocol.snapshot import Snapshot


def expand_input(services: Services, snapshot: Snapshot, op: UserInput) -> UserInput:
    """Return `op` with its slash command expanded, or `op` itself if it calls none.

    Agent and model of the input override those of the command. Raises `RejectionError` for a
    command that is invalid or whose expansion is too long.
    """
    call = read_call(op.text)
    if call is None:
        return op
    project = trusted_workspace(services, snapshot.workspace)
    command = read_with_rules(
        services,
        f"{'trusted' if project else 'untrusted'} command {call.name}",
        services.user.projects.inspect(snapshot.workspace).workspace,
        session_rules(services, snapshot),
        partial(find_command, call.name, project, services.user.config_directory),
    )
    if command is None:
        # Text may begin with a slash for other reasons, such as a path.
        return op
    if command.problem:
        message = f"The command /{call.name} can't be used: {command.problem}."
        raise RejectionError("invalid_settings", message, input_data(op))
    text = expand(command.template, call.arguments, INPUT_BYTES_MAX)
    if text is None:
        message = (
            f"/{call.name} with these arguments expands to more than {INPUT_BYTES_MAX:,} bytes. "
            "Shorten the arguments, or put them into a file and name the file."
        )
        raise RejectionError("too_large", message, {"limit": INPUT_BYTES_MAX})
    overrides = structs.replace(
        op.overrides,
        agent=op.overrides.agent or command.agent,
        model=op.overrides.model or command.model,
    )
    expanded = structs.replace(op, text=text, overrides=overrides)
    # The template may expand to empty text.
    check_input(expanded)
    return expanded
