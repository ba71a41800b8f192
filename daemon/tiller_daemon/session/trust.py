"""What a workspace may add to the user's own: nothing, unless the user trusts what is in it."""

from pathlib import Path

from tiller_daemon.config import Configuration, ConfigurationError, TrustError
from tiller_daemon.errors import RejectionError
from tiller_daemon.session.services import Services
from tiller_protocol.answers import ProjectResult
from tiller_protocol.events import WarningRaised
from tiller_protocol.ops import Project as ProjectOp


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
        str(found.workspace), found.digest, found.files, found.trusted, found.problem
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
    return [WarningRaised("untrusted_project", message)]
