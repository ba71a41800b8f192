"""Limits the daemon's imports until it is ready, by names and counts, as times vary by machine.

Raise the maximum only for code that a start needs, and in the same commit.
"""

import re
import time
from collections.abc import Callable

import pytest

from support.daemon import START_S, Daemon

pytestmark = pytest.mark.whole_start

READY_MODULES_MAX = 768
"""Modules that the daemon has imported when it is ready."""

FOREIGN = {
    *("asyncio", "rich", "pygments", "yaml", "tiller_client"),
    *("anyio", "httpx2", "httpcore2", "h11", "jsonschema", "referencing", "pydantic", "mcp"),
    *("genai_prices", "jwt", "cryptography", "PIL", "rapidfuzz", "html_to_markdown", "keyring"),
}
"""Packages that only some turns need, or nobody; their names alone also show failed imports."""

IMPORTED_WHEN_IDLE = ("stringprep", "yaml.loader")
"""Modules that come with those imported by name, which Python's list omits."""


def test_the_daemon_is_ready_before_it_imports_what_only_some_turns_need(
    new_daemon: Callable[..., Daemon],
) -> None:
    daemon = new_daemon()
    daemon.program = ("-X", "importtime", *daemon.program)
    daemon.start()
    before, ready, _ = daemon.said.partition('"event": "ready"')
    imported = _imported(before)
    assert ready
    assert {name.partition(".")[0] for name in imported if "." in name} & FOREIGN == set()
    assert len(imported) <= READY_MODULES_MAX, " ".join(imported)


def test_the_rest_is_imported_while_nobody_waits_for_it(new_daemon: Callable[..., Daemon]) -> None:
    daemon = new_daemon()
    daemon.program = ("-X", "importtime", *daemon.program)
    daemon.start()
    deadline = time.monotonic() + START_S
    while not set(IMPORTED_WHEN_IDLE) <= set(_imported(daemon.said)):
        assert time.monotonic() < deadline


def _imported(said: str) -> list[str]:
    """The modules that Python lists, in this order."""
    return re.findall(r"^import time: .*\| +(\S+)$", said, re.MULTILINE)
