"""Faults of snapshots: changes that stamps and a watch would lose."""

from fault import Fault

SNAPSHOTS = "daemon/tiller_daemon/snapshots/"

FAULTS = (
    Fault(
        "a change that the queue of events had no place for is found",
        SNAPSHOTS + "watch.py",
        "Watch.changed",
        "overflown = overflown or bool(mask & _OVERFLOW)",
        "pass",
    ),
    Fault(
        "a directory that was made again is watched",
        SNAPSHOTS + "watch.py",
        "Watch.changed",
        "if mask & _ENDED:",
        "if mask & _ENDED and False:",
    ),
    Fault(
        "a change of an ignore file is seen",
        SNAPSHOTS + "known_workspace.py",
        "KnownWorkspace._check",
        "stamp_at(path + IGNORE_FILE) != directory.ignore_stamp",
        "False",
    ),
    Fault(
        "a directory that becomes a repository, or none, is seen",
        SNAPSHOTS + "surroundings.py",
        "Surroundings.are_the_same",
        "_identity_at(path) == identity",
        "True",
    ),
    Fault(
        "what changes while the files become known is found",
        SNAPSHOTS + "known_workspace.py",
        "KnownWorkspace.__init__",
        "self._all_seen = True",
        "self._all_seen = False",
    ),
    Fault(
        "a directory in the place of the workspace is another one",
        SNAPSHOTS + "known_workspace.py",
        "KnownWorkspace.check",
        "(here.st_ino, here.st_dev) != (self.top.inode, self.device)",
        "False",
    ),
    Fault(
        "a young stamp is not trusted",
        SNAPSHOTS + "directories.py",
        "trusted",
        "read_ns - tick_ns",
        "read_ns",
    ),
    Fault(
        "no snapshot refers to content that was removed",
        SNAPSHOTS + "looks.py",
        "Looks.drop",
        "self._not_in_index = {}",
        "pass",
    ),
)
