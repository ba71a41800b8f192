"""Fixtures for the tests of the configuration."""

import pytest

from tiller_daemon.config import Configuration, load_configuration
from tiller_protocol.places import Places


@pytest.fixture
def places(tmp_path):
    found = Places(tmp_path / "config", tmp_path / "state", tmp_path / "runtime")
    found.config.mkdir()
    return found


@pytest.fixture
def load(places):
    def loaded(text=None, environ=None, overrides=(), **rest) -> Configuration:
        if text is not None:
            (places.config / "config.toml").write_text(text, encoding="utf-8")
        return load_configuration(places, environ or {}, overrides, **rest)

    return loaded
