"""What of a workspace may be read unasked, by rules of a session or turn; see `policy.readable`."""

import os
from collections.abc import Sequence
from pathlib import Path

from tiller_daemon.config import Agent
from tiller_daemon.files.paths import text_of
from tiller_daemon.policy.readable import Readable
from tiller_daemon.session.project_trust import configuration_for
from tiller_daemon.session.services import Services
from tiller_daemon.workspace.documents import MayRead
from tiller_protocol.settings import Rule
from tiller_protocol.snapshot import Snapshot


def may_read(workspace: str | Path, rules: Sequence[Rule]) -> MayRead:
    """Return the check of files, given by where their paths lead."""
    root, readable = Path(os.path.realpath(workspace)), Readable(rules)
    return lambda path: readable(text_of(root, path))


def session_rules(
    services: Services, snapshot: Snapshot, agent: Agent | None = None
) -> tuple[Rule, ...]:
    """Return the rules for what is done with a session outside of its turns, weakest first.

    Raises `RejectionError` for a project whose configuration is broken.
    """
    configuration = configuration_for(services, snapshot.workspace)
    of_agent = agent.permissions if agent else ()
    return (*configuration.permissions, *of_agent, *(snapshot.settings.permissions or ()))
