"""The login service, which one process serves to all tests of a worker."""

from collections.abc import Iterator

import pytest

from support.login_service import LoginPeer, running_peer


@pytest.fixture(scope="session")
def peer_process() -> Iterator[LoginPeer]:
    with running_peer() as peer:
        yield peer


@pytest.fixture
def peer(peer_process: LoginPeer) -> LoginPeer:
    """The login service, behaving as documented."""
    peer_process.behave()
    peer_process.seen()
    return peer_process
