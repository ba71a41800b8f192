"""The environment of child processes: clean of secrets, marked so that they are found again.

Pure. Who starts and who ends processes is in `process` and `tree`.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

DAEMON_MARKER: Final = "TILLER_DAEMON"
"""Holds the daemon's log id in everything that it starts, so that leftovers are found."""

CALL_MARKER: Final = "TILLER_CALL"
"""Holds the id of the tool call for which a process was started."""

SECRET_NAME: Final = re.compile(
    r"(?:^|_)(?:API|ACCESS|PRIVATE|SECRET|SIGNING|ENCRYPTION)?_?KEYS?(?:_|$)"
    r"|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL"
    r"|(?:^|_)(?:PASS|PAT|PWD_HASH|AUTH)$",
    re.IGNORECASE,
)
"""Names that hold secrets by the habits of clouds, forges, databases and model providers."""

SECRET_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})

SECRET_VALUE_CHARS_MIN: Final = 8
"""Shorter values (`1`, `true`) are not looked for in the other variables."""

DAEMON_ONLY: Final = frozenset(
    {
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "LISTEN_FDNAMES",
        "LISTEN_FDS",
        "LISTEN_PID",
        "NOTIFY_SOCKET",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
    }
)
"""What a service manager tells the daemon alone: a command must not answer for it."""

UNATTENDED: Final = {
    "GH_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "PAGER": "cat",
    "TERM": "dumb",
}
"""Keeps well-known programs from waiting for a person who is not there."""


def is_secret_header(name: str) -> bool:
    """Whether a header of this name holds what lets somebody in."""
    named = SECRET_NAME.search(name.replace("-", "_"))
    return named is not None or name.casefold() in SECRET_HEADERS


def child_environment(
    environ: Mapping[str, str], secret_names: Collection[str], log_id: str, call_id: str
) -> dict[str, str]:
    """Return the whole environment for a child process of the daemon.

    Left out of `environ`: the variables in `secret_names` (those the configuration reads keys
    from), whatever is named like a secret, any variable that repeats such a secret's value, and
    what is the daemon's own business. `call_id` is empty for a process that belongs to no call,
    such as a server of the daemon: a command's end then leaves it alone.
    """
    secrets = {name for name in environ if name in secret_names or SECRET_NAME.search(name)}
    values = {environ[name] for name in secrets if len(environ[name]) >= SECRET_VALUE_CHARS_MIN}
    kept = {
        name: value
        for name, value in environ.items()
        if name not in secrets
        and name not in DAEMON_ONLY
        and not name.startswith("TILLER_")
        and not any(secret in value for secret in values)
    }
    marks = {DAEMON_MARKER: log_id} | ({CALL_MARKER: call_id} if call_id else {})
    return kept | UNATTENDED | marks
