"""The levels of sandboxes that a command may run in, from the strictest to none at all.

`sandboxes` defines what each level allows; `policy` decides which one a command line gets.
"""

from enum import IntEnum


class SandboxLevel(IntEnum):
    """A sandbox level; each one allows everything that the levels before it allow."""

    READ_ONLY = 0
    """Allows reading the workspace and the system, and writing to a private `/tmp`.

    It has no network, except with `sandbox.network` in the mode `read_only`.
    """

    BUILD = 1
    """Also allows writing to the workspace, but not to `.git`."""

    SESSION = 2
    """Allows everything that the session's mode allows; for approved commands."""

    OUTSIDE = 3
    """No sandbox: allows everything that the user may do."""
