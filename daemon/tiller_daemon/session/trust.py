"""What a workspace may add to the user's own: nothing, unless the user trusts what is in it."""

import re
import shlex
from pathlib import Path
from typing import Final

from tiller_daemon.config import (
    Configuration,
    ConfigurationError,
    Hook,
    Project,
    ProjectHook,
    TrustError,
    hooks_brought,
)
from tiller_daemon.errors import RejectionError
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.session.hooks import Hold
from tiller_daemon.session.services import Services
from tiller_daemon.turn.context import Permissions, TurnContext
from tiller_protocol.answers import HookSummary, ProjectResult
from tiller_protocol.events import WarningRaised
from tiller_protocol.ops import Project as ProjectOp

_HOOKS: Final = re.compile(r"""^\s*(\[\[\s*)?["']?hooks\b""", re.MULTILINE)
"""What hooks begin with. What is not trusted is not parsed just to say that it has some."""


def configuration_for(services: Services, workspace: str) -> Configuration:
    """The configuration that counts in a workspace; raises `RejectionError` for a broken one."""
    try:
        return services.projects.configuration(workspace)
    except ConfigurationError as error:
        message = f"{error.message}. Repair it, or trust the project no more: tiller untrust."
        raise RejectionError("invalid_settings", message) from None


def trusted_place(services: Services, workspace: str | None) -> Path | None:
    """The workspace, links followed, if what it brings is trusted."""
    if workspace is None:
        return None
    project = services.projects.look(workspace)
    return project.workspace if project.trusted else None


def hooks_for(
    services: Services, configuration: Configuration, permissions: Permissions
) -> tuple[Hook, ...]:
    """The hooks of a turn: the project's too where something holds them.

    Where nothing does one that must not be passed by stays, and says no.
    """
    if not services.confiner.is_missing(permissions.sandbox):
        return configuration.hooks
    return tuple(hook for hook in configuration.hooks if not _may_be_left_out(hook))


def hold_of_project(services: Services, context: TurnContext) -> Hold:
    """What holds the project's hooks now: the sandbox that its commands are held by."""
    policy = context.permissions.sandbox
    if trusted_place(services, context.workspace) is None:
        return Hold(problem="what `.tiller` holds has changed since it was trusted")
    if services.confiner.is_missing(policy):
        return Hold(problem="no sandbox works here, and a project's hook runs in none else")
    spill = services.spill_directory(context.session_id)
    place = Path(context.workspace)
    return Hold(services.confiner.confined(Enclosure.SESSION, policy, place, spill))


def warning_of_unheld_hooks(configuration: Configuration) -> str:
    """What there is to say of hooks where no sandbox works; empty when the project brings none."""
    if not any(isinstance(hook, ProjectHook) for hook in configuration.hooks):
        return ""
    return (
        " Nor are the project's hooks run; what one of them must be asked about "
        '(`on_failure = "deny"`) is denied.'
    )


def answer_project(services: Services, op: ProjectOp) -> ProjectResult:
    """Trust a project or trust it no more, if that is asked; say what it brings."""
    projects = services.projects
    try:
        match op.trust:
            case None:
                found = projects.look(op.workspace)
            case True:
                found = projects.trust(op.workspace, op.digest)
            case False:
                found = projects.untrust(op.workspace)
    except TrustError as error:
        raise RejectionError("invalid_settings", str(error)) from None
    except OSError as error:
        message = f"That could not be kept: {error.strerror}."
        raise RejectionError("unavailable", message) from None
    return ProjectResult(
        str(found.workspace),
        found.digest,
        found.files,
        found.trusted,
        found.problem,
        tuple(map(_summary, _hooks_of(found))),
    )


def warning_of_trust(services: Services, workspace: str, told: set[str]) -> list[WarningRaised]:
    """What a session was not `told` yet: that its project brings something that does not count."""
    project = services.projects.look(workspace)
    news = project.digest or project.problem
    if project.trusted or not news or news in told:
        return []
    told.add(news)
    if project.problem:
        message = f"What `.tiller` of this project holds does not count: {project.problem}."
    else:
        names = ", ".join(project.files[:5]) + (" …" if len(project.files) > 5 else "")
        message = (
            f"This project brings {names}, which count only when you trust them. Look at them, "
            "then: tiller trust."
        )
        if _HOOKS.search(project.text):
            message += " Its hooks will not run before."
    return [WarningRaised("untrusted_project", message)]


def _hooks_of(project: Project) -> tuple[ProjectHook, ...]:
    """The hooks that a project brings; one whose file can't be understood can't be trusted."""
    try:
        return hooks_brought(project.text)
    except ConfigurationError:
        return ()


def _summary(hook: Hook) -> HookSummary:
    command = hook.command if isinstance(hook.command, str) else shlex.join(hook.command)
    return HookSummary(hook.on, command, hook.tool, hook.name)


def _may_be_left_out(hook: Hook) -> bool:
    return isinstance(hook, ProjectHook) and hook.on_failure == "go_on"
