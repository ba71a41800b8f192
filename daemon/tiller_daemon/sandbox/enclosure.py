"""Where a command runs, from the strictest enclosure to none at all.

What each one allows is in `confinement`; which one a command line gets is decided in `policy`.
"""

from enum import IntEnum


class Enclosure(IntEnum):
    """Ordered: whatever can be done in one can be done in those after it."""

    READ_ONLY = 0
    """Sees the workspace and the system, writes to a private `/tmp` only, and has no network."""

    BUILD = 1
    """Writes in the workspace as well, but not to `.git`."""

    SESSION = 2
    """What the mode of the session allows, for what somebody was asked about."""

    OUTSIDE = 3
    """No enclosure: what the user may."""
