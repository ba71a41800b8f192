"""What the daemon reads of a workspace for a snapshot, whatever a command has put there."""

import io
import os
from pathlib import Path

from tiller_daemon.files.restore import FILE_BYTES_MAX, LINK, PLAIN, blob_id
from tiller_daemon.snapshots.blobs import write_blobs

SECRET = b"sk-canary-0123456789"
OUTSIDE = b"what lies outside"


def test_only_files_and_links_are_read_and_no_link_is_followed(tmp_path: Path):
    outside, workspace = tmp_path / "outside", tmp_path / "w"
    for folder in (outside, workspace / "d", workspace / "e"):
        folder.mkdir(parents=True)
    (outside / "file").write_bytes(OUTSIDE)
    (workspace / "d" / "file").write_bytes(b"inside")
    (workspace / "linked").symlink_to(outside)
    (workspace / "e" / "linked").symlink_to("../linked")
    (workspace / "link").symlink_to(outside / "file")
    (workspace / "key").write_bytes(b"a " + SECRET)
    (workspace / "link-to-key").symlink_to(SECRET.decode())
    with (workspace / "large").open("wb") as large:
        large.truncate(FILE_BYTES_MAX + 1)
    os.mkfifo(workspace / "pipe")
    left_out = (
        *("linked/file", "e/linked/file", "key", "link-to-key", "large", "pipe", "missing", "d"),
        *("../outside/file", "d/../../outside/file"),
    )
    blobs = io.BytesIO()
    entries = write_blobs(workspace, ("d/file", "link", *left_out), (SECRET,), blobs)
    target = os.fsencode(outside / "file")
    assert entries == {
        "d/file": (PLAIN, blob_id(b"inside")),
        "link": (LINK, blob_id(target)),
    }
    assert blobs.read() == b"blob\ndata 6\ninside\nblob\ndata %d\n%b\n" % (len(target), target)
