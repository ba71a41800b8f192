"""Git snapshots without a daemon, and services that take them."""

import os
from collections.abc import Callable
from pathlib import Path

import trio
from msgspec import structs

from support.world import World
from tiller_daemon.models.scripted import Script
from tiller_daemon.session.services import Services
from tiller_daemon.snapshots.snapshots import Snapshots


def snapshots_in(
    directory: Path, is_secret: Callable[[Path, str], bool] = lambda *_: False
) -> Snapshots:
    """Snapshots that are stored in a directory; no revert was ever committed."""
    return Snapshots(directory, {"PATH": os.environ["PATH"]}, is_secret, tuple, _never)


async def services_with(snapshots: Snapshots, nursery: trio.Nursery) -> Services:
    """Services of a daemon in memory that take these snapshots."""
    services = (await World.start(nursery, {"s": Script(())})).services
    return structs.replace(services, files=structs.replace(services.files, snapshots=snapshots))


def fail(warning: object) -> None:
    """Take a warning where none is expected."""
    raise AssertionError(warning)


async def _never(submission_id: str) -> bool:
    await trio.lowlevel.checkpoint()
    return False
