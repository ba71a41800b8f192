"""`tiller` whose standard streams are closed, as `>&-` does it."""

import subprocess

import pytest

from support.fake_daemon import FakeDaemon
from support.terminal import TILLER
from tiller_protocol.places import Places


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "status"), [("ls", 0), ("--version", 0), ("show nosuch", 2)])
def test_a_closed_stream_changes_nothing_else(
    places: Places, closed: str, words: str, status: int
) -> None:
    with FakeDaemon(places.runtime):
        done = subprocess.run(
            ["bash", "-c", f'"$@" {words} {closed}', "bash", *TILLER],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
