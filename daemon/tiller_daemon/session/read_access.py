"""Which files may be read without asking the user, by the rules of a session or a turn.

How rules decide is in `policy.readable`.
"""

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
    return (*configuration.permissions, *of_agent, *(snapshot.settings.permissions or ()))
