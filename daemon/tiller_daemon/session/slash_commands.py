"""What a user typed as `/NAME arguments`: the text and the choices that it stands for."""

from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.project_trust import trusted_workspace
from tiller_daemon.session.read_access import may_read, session_rules
from tiller_daemon.session.services import Services
from tiller_daemon.session.validation import check_input, input_data
from tiller_daemon.workspace.commands import expand, find_command, read_call
from tiller_protocol.codec import INPUT_BYTES_MAX
from tiller_protocol.ops import UserInput
from tiller_protocol.snapshot import Snapshot


def expand_input(services: Services, snapshot: Snapshot, op: UserInput) -> UserInput:
    """Return what `op` stands for; an input that calls no command stands for itself.

    What the input chooses itself counts more than the command's choice. Raises `RejectionError`
    for a command that can't be used, or that gets too long.
    """
    call = read_call(op.text)
    if call is None:
        return op
    place = trusted_workspace(services, snapshot.workspace)
    unasked = may_read(snapshot.workspace, session_rules(services, snapshot))
    command = find_command(call.name, place, services.user.config_directory, unasked)
    if command is None:
        return op
    if command.problem:
        message = f"The command /{call.name} can't be used: {command.problem}."
        raise RejectionError("invalid_settings", message, input_data(op))
    text = expand(command.template, call.arguments, INPUT_BYTES_MAX)
    if text is None:
        message = f"/{call.name} with these arguments has more than {INPUT_BYTES_MAX:,} bytes."
        raise RejectionError("too_large", message, {"limit": INPUT_BYTES_MAX})
    overrides = structs.replace(
        op.overrides,
        agent=op.overrides.agent or command.agent,
        model=op.overrides.model or command.model,
    )
    expanded = structs.replace(op, text=text, overrides=overrides)
    check_input(expanded)
    return expanded
