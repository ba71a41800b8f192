"""The enclosure that a command runs in, from the strictest to none at all.

What each one allows is defined in `confiner`; `policy` decides which one a command line gets.
"""

from enum import IntEnum


class Enclosure(IntEnum):
    """Ordered: whatever is possible in one is possible in those after it."""

    READ_ONLY = 0
    """Reads the workspace and the system, writes only to a private `/tmp`, and has no network."""

    BUILD = 1
    """Also writes to the workspace, but not to `.git`."""

    SESSION = 2
    """Everything that the mode of the session allows, for what was approved."""

    OUTSIDE = 3
    """No enclosure: everything that the user may do."""
