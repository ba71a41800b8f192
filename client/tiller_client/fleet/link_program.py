"""The process of a link: `python -m tiller_client.fleet.link_program HOST CONFIG DIRECTORY`.

It holds a lock, so that there is one link for each host and user. Its first line of output says
whether it has reached the host; after that, it is alone.
"""

import asyncio
import fcntl
import os
import sys
import time
from pathlib import Path

from tiller_client.connecting.fleet_daemon import STATE_FILE, LinkState, encode_state, read_state
from tiller_client.connecting.runtime import check_runtime
from tiller_client.errors import LinkLost, TillerError
from tiller_client.fleet.settings import read_settings, require_packages
from tiller_protocol.places import CONFIG_FILE, LOCK_FILE, TOKEN_FILE, Places

LOCK_S = 20.0
"""How long to wait for another link to the host to reach it, or to end."""

POLL_S = 0.02


def main() -> int:
    """Run the link; everything that goes wrong before it is up is reported as a `LinkState`."""
    host, config, directory = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    os.umask(0o077)
    try:
        require_packages()
        from tiller_client.fleet.link import Link

        check_runtime(directory)
        if not _lock(directory):
            return 0
        settings = read_settings(Places(config, directory, directory))
        asyncio.run(Link(settings, host, directory, config / CONFIG_FILE).run(_report))
    except TillerError as error:
        is_usage = not isinstance(error, LinkLost)
        _report(LinkState(problem=str(error), is_usage=is_usage))
        return 1
    return 0


def _lock(directory: Path) -> bool:
    """Lock the directory until this process ends; false if another link is there.

    Then what that link says was reported. Raises `LinkLost`.
    """
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if state := read_state(directory):
                _report(state)
                return False
            if time.monotonic() > deadline:
                raise LinkLost("another link to this host starts or ends, but takes long") from None
            time.sleep(POLL_S)
        else:
            for name in (STATE_FILE, TOKEN_FILE):  # of a link that was killed
                (directory / name).unlink(missing_ok=True)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
            return True


def _report(state: LinkState) -> None:
    """Tell the starter, once, and leave its pipe."""
    os.write(sys.stdout.fileno(), encode_state(state))
    with open(os.devnull, "wb") as null:  # noqa: PTH123 - a descriptor is needed
        os.dup2(null.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
