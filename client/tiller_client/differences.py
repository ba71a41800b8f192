"""Differences between the running daemon and this program that a restart would remove.

The daemon lists the names of variables with keys that it lacks. No key is compared or sent.
"""

from collections.abc import Mapping

from tiller_protocol import VERSION
from tiller_protocol.answers import HelloResult

RESTART = "run: tiller daemon restart (with --drain, running turns finish first)"


def differences(hello: HelloResult, environ: Mapping[str, str]) -> list[str]:
    """Sentences for the user about how the daemon that said `hello` differs."""
    found: list[str] = []
    if hello.daemon_version != VERSION:
        found.append(
            f"the running daemon is tillerd {hello.daemon_version}, but this is tiller {VERSION}; "
            f"to use the same version, {RESTART}"
        )
    elif hello.replaced:
        found.append(
            "tillerd was reinstalled after the running daemon was started; to use the new tillerd, "
            f"{RESTART}"
        )
    if names := [name for name in hello.missing_keys if environ.get(name, "").strip()]:
        found.append(
            f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} set here, but not where "
            f"the running daemon was started; to use {'it' if len(names) == 1 else 'them'}, "
            f"{RESTART}"
        )
    return found
