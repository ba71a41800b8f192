"""Fixtures: a NATS server, a host with a daemon and the far end of links, and a home here."""

from collections.abc import Generator

import pytest

from e2e.conftest import tillers, workspace
from support.daemon import Daemon
from support.far_homes import FarHome
from support.far_host import GATEWAY, ROLES, FarHost, url
from support.fleet import Broker

__all__ = ["tillers", "workspace"]


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    with Broker(tmp_path_factory.mktemp("n"), ROLES) as server:
        yield server


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("d")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def box(nats: Broker, daemon: Daemon) -> Generator[FarHost]:
    with FarHost(url(nats, GATEWAY), "box", daemon.places) as box:
        yield box


@pytest.fixture(scope="module")
def here(
    nats: Broker, box: FarHost, tmp_path_factory: pytest.TempPathFactory
) -> Generator[FarHome]:
    """A home whose user may drive `box`."""
    with FarHome(tmp_path_factory.mktemp("h"), f'[fleet]\nservers = ["{url(nats)}"]') as home:
        yield home
