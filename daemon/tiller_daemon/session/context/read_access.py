"""Which files may be read without asking the user, by the rules of a session or a turn.

How rules decide is in `policy.readable`.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tiller_daemon.config import Agent
from tiller_daemon.files.paths import text_of
from tiller_daemon.policy.readable import Readable, rules_of_reading
from tiller_daemon.session.context.project_trust import configuration_for
from tiller_daemon.session.services import Services
from tiller_daemon.workspace.documents import MayRead
from tiller_protocol.settings import Rule
from tiller_protocol.snapshot import Snapshot

T = TypeVar("T")


def may_read(workspace: str | Path, rules: Sequence[Rule]) -> MayRead:
    """Return a function that checks files by their resolved paths."""
    root, readable = Path(os.path.realpath(workspace)), Readable(rules)
    return lambda path: readable(text_of(root, path))


def read_with_rules(
    services: Services,
    kind: str,
    root: Path,
    rules: Sequence[Rule],
    read: Callable[[MayRead], T],
) -> T:
    """Return what `read` makes of documents that models may see; again only after a change.

    `kind` names what that is. It depends only on `root`, which is absolute and without links, on
    the rules, and on files that are read with the functions of `workspace`.
    """
    # Other rules differ between sessions, so they must not be part of the key.
    key = (kind, root, tuple(rules_of_reading(rules)))
    return services.user.documents.get(key, lambda: read(may_read(root, rules)))


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
