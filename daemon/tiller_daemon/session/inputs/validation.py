"""Validates frontends' input. Each check raises `RejectionError` with a helpful message."""

import os
from pathlib import Path
from typing import Any

import msgspec

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.context.freeze import choose_tools
from tiller_daemon.session.context.model_choice import choose_model, layers_of
from tiller_daemon.session.context.project_trust import configuration_for
from tiller_daemon.session.services import Services
from tiller_daemon.session.sub_agents.agents import DEFAULT_AGENT, find_agent
from tiller_daemon.turn.output_schema import schema_problem
from tiller_protocol.codec import INPUT_BYTES_MAX
from tiller_protocol.ops import UserInput
from tiller_protocol.settings import Settings, TurnOverrides


def check_input(op: UserInput) -> None:
    """Reject input that is empty or too large, or whose output schema is invalid."""
    if not op.text.strip() and not op.images and not op.files:
        raise RejectionError("empty_input", "The input is empty. Give text, an image or a file.")
    # JSON may carry lone surrogates, which plain UTF-8 can't encode.
    texts = (op.text, op.system, op.context)
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    size += sum(len(image.data) for image in op.images)
    if size > INPUT_BYTES_MAX:
        raise RejectionError(
            "too_large",
            f"The input has {size:,} bytes; at most {INPUT_BYTES_MAX:,} are allowed. "
            "Put large data into a file and give its path.",
            {"limit": INPUT_BYTES_MAX, "size": size},
        )
    check_overrides(op.overrides)


def check_overrides(overrides: TurnOverrides) -> None:
    """Reject overrides whose output schema is invalid."""
    schema = overrides.output_schema
    if schema is not None and (problem := schema_problem(schema)):
        message = f"The output schema can't be used: {problem}. It must be a JSON Schema."
        raise RejectionError("invalid_settings", message)


def input_data(op: UserInput) -> dict[str, Any]:
    """Return the input as `data` of a rejection, so that nothing the user typed is lost."""
    return {"input": msgspec.to_builtins(op)}


def check_workspace(workspace: str, session_id: str = "", worktree: str = "") -> None:
    """Reject a workspace that is not an accessible directory.

    For the workspace of a session, the message says how to put back its worktree, or how to name
    another place.
    """
    path = Path(workspace)
    if not path.is_absolute():
        problem = "is not an absolute path"
    elif _is_usable_directory(workspace):
        return
    elif not path.exists():
        problem = "does not exist"
    elif not path.is_dir():
        problem = "is not a directory"
    else:
        problem = "can't be read: check its permissions"
    message = f"The workspace {workspace} {problem}."
    if worktree:
        message += f" If the worktree was removed, put it back: tiller worktree restore {worktree}"
    elif session_id:
        message += f" If it has moved, name its new place: tiller set {session_id} workspace DIR"
    raise RejectionError("invalid_settings", message)


def _is_usable_directory(path: str) -> bool:
    """Whether a path is a directory that can be listed and entered, checked by one system call."""
    try:
        # With a slash at its end, only a directory has a path.
        return os.access(f"{path}/", os.R_OK | os.X_OK)
    except ValueError:
        # A NUL, or half a surrogate pair.
        return False


def check_settings(
    services: Services, workspace: str, new: Settings, merged: Settings | None = None
) -> None:
    """Reject new settings that name an unknown model, variant, agent or tool.

    `merged` are the session's settings after the change; None if the session is new.
    """
    if new.model is not None:
        services.model(new.model)
    if new.agent is not None:
        find_agent(services, workspace, new.agent)
    if new.tools is not None:
        # Tools of MCP servers may be missing, so the tools that every session has are enough.
        choose_tools(services.tools.available(""), new.tools)
    if new.variant:
        _check_variant(services, workspace, merged or new)


def _check_variant(services: Services, workspace: str, settings: Settings) -> None:
    configuration = configuration_for(services, workspace)
    agent = find_agent(services, workspace, settings.agent or DEFAULT_AGENT)
    layers = layers_of(configuration, agent, settings)
    # If no layer chooses a model, the default model is known only when a turn begins.
    if any(layer.model for layer in layers):
        choose_model(services, layers)
