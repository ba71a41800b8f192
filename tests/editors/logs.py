"""Logs of a daemon that are put back, as from a backup."""

import sqlite3
from contextlib import closing

from support.daemon import Daemon
from tiller_protocol.places import LOG_FILE


def put_back(daemon: Daemon, kept: bytes, log_id: str = "") -> None:
    """Give a stopped daemon an earlier state of its log, or with `log_id` another log."""
    path = daemon.places.state / LOG_FILE
    for file in daemon.places.state.glob(f"{LOG_FILE}-*"):
        file.unlink()
    path.write_bytes(kept)
    if log_id:
        with closing(sqlite3.connect(path)) as log, log:
            log.execute("UPDATE meta SET value = ? WHERE key = 'log_id'", [log_id])
