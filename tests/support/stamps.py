"""Waits until the file system's clock has advanced, so that file stamps are trusted."""

from pathlib import Path

from tiller_daemon.snapshots.directories import TICK_NS


def let_stamps_age(directory: Path) -> None:
    """Return when the stamps of all files are old; make a file in `directory` to find out."""
    probe = directory / "probe"
    probe.write_text("")
    begun_ns = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns <= begun_ns + TICK_NS:
        probe.write_text("")
