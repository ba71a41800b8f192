"""Directories for parts of the daemon that tests make outside of a fixture."""

import shutil
import tempfile
import weakref
from pathlib import Path

from tiller_daemon.store.search_index import SearchIndex


def directory_of(owner: object) -> Path:
    """Make a directory that is removed with its owner."""
    directory = tempfile.mkdtemp(prefix="tiller-")
    weakref.finalize(owner, shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


class TemporarySearchIndex(SearchIndex):
    """A search index whose file is removed with the object."""

    def __init__(self, log_id: str) -> None:
        super().__init__(directory_of(self) / "search.db", log_id)
