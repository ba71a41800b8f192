"""Waiting until the clock of the file system has gone on, so that stamps of files are trusted."""

from pathlib import Path

from tiller_daemon.snapshots.directories import TICK_NS


def let_stamps_age(directory: Path) -> None:
    """Return when the stamps of all files are old; makes a file in this directory."""
    probe = directory / "probe"
    probe.write_text("")
    begun_ns = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns <= begun_ns + TICK_NS:
        probe.write_text("")
