"""Finds out by a session's or a turn's rules which files may be read without asking the user.

`policy.readable` applies the rules.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tiller_daemon.config import Agent
from tiller_daemon.files.paths import text_of
from tiller_daemon.policy import globs
from tiller_daemon.policy.readable import Readable
from tiller_daemon.session.context.project_trust import configuration_for
from tiller_daemon.session.services import Services
from tiller_daemon.workspace.documents import MayRead
from tiller_protocol.settings import Rule
from tiller_protocol.snapshot import Snapshot


def may_read(workspace: str | Path, rules: Sequence[Rule]) -> MayRead:
    """Return a function that checks files by their resolved paths."""
    root, readable = Path(os.path.realpath(workspace)), Readable(rules)
    return lambda path: readable(text_of(root, path))


def session_rules(
    services: Services, snapshot: Snapshot, agent: Agent | None = None
) -> tuple[Rule, ...]:
    """Return the rules that apply to a session outside its turns, weakest first.

    Raises `RejectionError` if the project's configuration is invalid.
    """
    configuration = configuration_for(services, snapshot.workspace)
    of_agent = agent.permissions if agent else ()
    of_session = snapshot.settings.permissions or ()
    lasting = services.user.lasting_rules.of(snapshot.workspace)
    return (*configuration.permissions, *of_agent, *of_session, *lasting)


def own_rules(services: Services, snapshot: Snapshot) -> Iterator[Rule]:
    """Yield rules that keep the daemon's own files, such as its token and its log, from the model.

    The model may read the full output of its own calls, which is stored among these files. These
    rules are the weakest, so the user's rules can override them.
    """
    root = services.user.projects.inspect(snapshot.workspace).workspace
    for place in services.commands.sandboxes.private:
        yield from (Rule("read", pattern, "deny") for pattern in _patterns_of(place, root))
    outputs = services.files.spill_directory(snapshot.session_id)
    for permission in ("read", "external_directory"):
        yield from (Rule(permission, pattern, "allow") for pattern in _patterns_of(outputs, root))


def _patterns_of(place: Path, workspace: Path) -> Iterator[str]:
    """Yield patterns for `place` and everything in it.

    If it is in the workspace, these include patterns relative to the workspace.
    """
    paths = [place]
    if place.is_relative_to(workspace):
        paths.append(place.relative_to(workspace))
    for path in paths:
        text = globs.escape(str(path))
        yield from (text, f"{text}/*")
