"""The enclosures that a command may run in, from the strictest to none at all.

`confiner` defines what each enclosure allows; `policy` decides which one a command line gets.
"""

from enum import IntEnum


class Enclosure(IntEnum):
    """An enclosure; each one allows everything that those before it allow."""

    READ_ONLY = 0
    """Reads the workspace and the system, writes only to a private `/tmp`, and has no network."""

    BUILD = 1
    """Also writes to the workspace, but not to `.git`."""

    SESSION = 2
    """Allows everything that the session's mode allows; for approved commands."""

    OUTSIDE = 3
    """No enclosure: everything that the user may do."""
