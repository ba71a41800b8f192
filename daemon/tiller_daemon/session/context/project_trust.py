"""Checks trust in projects, which decides what a workspace adds to the user's configuration.

Nothing in a project takes effect until the user has trusted the current content of its `.tiller`.
"""

import re
import shlex
from functools import partial
from pathlib import Path
from typing import Final

from tiller_daemon.config import (
    Configuration,
    ConfigurationError,
    Hook,
    Project,
    ProjectHook,
    TrustError,
    parse_project_hooks,
)
from tiller_daemon.errors import RejectionError
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.session.hooks import HookSandbox, TurnHooks
from tiller_daemon.session.services import Services
from tiller_daemon.turn.context import Permissions, TurnContext
from tiller_daemon.turn.ports import Emit
from tiller_protocol.answers import ProjectResult
from tiller_protocol.catalog import HookSummary
from tiller_protocol.ops import Project as ProjectOp

_HOOKS: Final = re.compile(r"""^[ \t]*(\[\[[ \t]*)?["']?hooks\b""", re.MULTILINE)
"""The start of hooks in TOML. Untrusted text is searched with this, never parsed. `\\s` would match
line breaks too, and so take quadratic time for empty lines."""


def configuration_for(services: Services, workspace: str) -> Configuration:
    """Return the configuration of a workspace; raises `RejectionError` if it is invalid."""
    try:
        return services.user.projects.configuration(workspace)
    except ConfigurationError as error:
        message = f"{error}. Fix this or, to stop trusting the project, run: tiller untrust"
        raise RejectionError("invalid_settings", message) from None


def trusted_workspace(services: Services, workspace: str | None) -> Path | None:
    """Return the workspace with links resolved if its `.tiller` is trusted, else None."""
    if workspace is None:
        return None
    project = services.user.projects.inspect(workspace)
    return project.workspace if project.trusted else None


def hooks_for(
    services: Services, configuration: Configuration, permissions: Permissions
) -> tuple[Hook, ...]:
    """Return the hooks of a turn: the user's, and the project's if a sandbox can confine them.

    Without a sandbox, a project hook with `on_failure = "deny"` stays in the list. When it is due,
    it fails and so denies the call.
    """
    if not services.commands.sandboxes.is_missing(permissions.sandbox):
        return configuration.hooks
    return tuple(
        hook
        for hook in configuration.hooks
        if not isinstance(hook, ProjectHook) or hook.on_failure != "go_on"
    )


def turn_hooks(
    services: Services, hooks: tuple[Hook, ...], context: TurnContext, emit: Emit
) -> TurnHooks:
    """Return the `hooks` of a turn, ready to run; they `emit` their warnings."""
    sandbox = partial(project_hook_sandbox, services, context)
    return TurnHooks(services.tools.hooks, hooks, context, emit, sandbox)


def project_hook_sandbox(services: Services, context: TurnContext) -> HookSandbox:
    """Return the sandbox for the project's hooks, the same as for the session's commands.

    Trust is checked each time, as the project's files may change while a turn runs.
    """
    policy = context.permissions.sandbox
    if trusted_workspace(services, context.workspace) is None:
        return HookSandbox(problem="`.tiller` has changed since it was trusted")
    if services.commands.sandboxes.is_missing(policy):
        return HookSandbox(problem="project hooks need a sandbox, but no sandbox works here")
    spill = services.files.spill_directory(context.session_id)
    workspace = Path(context.workspace)
    scope = context.permissions.scope
    sandbox = services.commands.sandboxes.make(
        SandboxLevel.SESSION, policy, workspace, spill, scope=scope and scope.roots
    )
    return HookSandbox(sandbox)


def unsandboxed_hooks_warning(configuration: Configuration) -> str:
    """Return an addition to the warning that no sandbox works; empty without project hooks."""
    if not any(isinstance(hook, ProjectHook) for hook in configuration.hooks):
        return ""
    return (
        " Without a sandbox, the project's hooks do not run. If a hook has "
        '`on_failure = "deny"`, the calls that it should check are denied.'
    )


def project_answer(services: Services, op: ProjectOp) -> ProjectResult:
    """Trust or distrust a project if the op asks for it, and return the project's contents."""
    projects = services.user.projects
    try:
        match op.trust:
            case None:
                project = projects.inspect(op.workspace)
            case True:
                project = projects.trust(op.workspace, op.digest)
            case False:
                project = projects.untrust(op.workspace)
    except TrustError as error:
        raise RejectionError("invalid_settings", str(error)) from None
    except OSError as error:
        message = f"The list of trusted projects could not be saved: {error.strerror}."
        raise RejectionError("unavailable", message) from None
    return ProjectResult(
        str(project.workspace),
        project.digest,
        project.files,
        project.trusted,
        project.problem,
        tuple(map(_hook_summary, _hooks_of(project))),
    )


def untrusted_project_warning(project: Project) -> str:
    """Return the warning that a project's files have no effect; empty if there is none to give."""
    if project.trusted or not (project.digest or project.problem):
        return ""
    if project.problem:
        return f"The project's `.tiller` is ignored: {project.problem}."
    names = ", ".join(project.files[:5]) + (" …" if len(project.files) > 5 else "")
    is_one = len(project.files) == 1
    they, take, them = ("It", "takes", "it") if is_one else ("They", "take", "them")
    message = (
        f"This project contains {names}. {they} {take} effect only if you trust {them}. "
        f"Review {them}, then run: tiller trust."
    )
    hooks = " Until then, the project's hooks do not run." if _HOOKS.search(project.text) else ""
    return f"{message}{hooks}"


def _hooks_of(project: Project) -> tuple[ProjectHook, ...]:
    try:
        return parse_project_hooks(project.text)
    except ConfigurationError:
        # A file that can't be parsed can't be trusted either, so none of its hooks will run.
        return ()


def _hook_summary(hook: Hook) -> HookSummary:
    command = hook.command if isinstance(hook.command, str) else shlex.join(hook.command)
    return HookSummary(hook.on, command, hook.tool, hook.name)
