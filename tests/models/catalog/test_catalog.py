"""What is known of models: at once what is known, meanwhile more; kept for the next daemon."""

import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tiller_daemon.models.base import ModelError
from tiller_daemon.models.catalog.catalog import (
    ENTRIES_MAX,
    LISTING_MAX_AGE_S,
    LISTING_MAX_AGE_UNKNOWN_S,
    LISTING_TIMEOUT_S,
    Catalog,
    is_public,
)
from tiller_daemon.models.catalog.facts import Facts, ModelRef
from tiller_daemon.models.catalog.listing import Listing

LOCAL = ModelRef("http://127.0.0.1:8080/v1", "qwen")
OPENAI = ModelRef("https://api.openai.com/v1", "gpt-5")


class FakeProvider:
    """A provider that says `listing`, or fails, after `seconds`."""

    def __init__(self, listing: Listing | None = None, seconds: float = 0.0) -> None:
        self.listing = listing
        self.seconds = seconds
        self.times: list[str] = []

    async def __call__(self, provider: str) -> Listing:
        self.times.append(provider)
        await trio.sleep(self.seconds)
        if self.listing is None:
            raise ModelError("refused", "nobody listens")
        return self.listing


@asynccontextmanager
async def running(asked: FakeProvider, file: Path | None = None) -> AsyncGenerator[Catalog]:
    catalog = Catalog(file, asked, os.environ)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(catalog.run)
        yield catalog
        nursery.cancel_scope.cancel()


async def until(true: Callable[[], bool]) -> None:
    """Wait for what other processes and threads do, which tell nobody here."""
    with trio.fail_after(30):
        while not true():  # noqa: ASYNC110
            await trio.sleep(0.02)


async def test_nothing_is_known_at_first_and_nobody_waits() -> None:
    asked = FakeProvider({"qwen": Facts(8_192), "other": Facts(4_096)}, seconds=1)
    async with running(asked) as catalog:
        assert catalog.facts("local", LOCAL) == Facts()
        assert asked.times == []


async def test_what_a_provider_says_is_known_the_next_time(autojump_clock: MockClock) -> None:
    asked = FakeProvider({"qwen": Facts(8_192), "other": Facts(4_096)})
    async with running(asked) as catalog:
        catalog.facts("local", LOCAL)
        await trio.sleep(1)
        assert catalog.facts("local", LOCAL) == Facts(8_192)
        assert catalog.facts("local", ModelRef(LOCAL.base_url, "other")) == Facts(4_096)
        await trio.sleep(1)
        assert asked.times == ["local"]


@pytest.mark.parametrize(
    ("listing", "again_s"),
    [
        ({"qwen": Facts(8_192)}, LISTING_MAX_AGE_S),
        ({"qwen": Facts()}, LISTING_MAX_AGE_UNKNOWN_S),
        (None, LISTING_MAX_AGE_UNKNOWN_S),
    ],
)
async def test_a_provider_is_asked_again_when_it_is_used_later(
    autojump_clock: MockClock, listing: Listing | None, again_s: float
) -> None:
    asked = FakeProvider(listing)
    async with running(asked) as catalog:
        for _ in range(3):
            catalog.facts("local", LOCAL)
            await trio.sleep(again_s / 3 + 1)
        assert len(asked.times) == 1
        catalog.facts("local", LOCAL)
        await trio.sleep(1)
        assert len(asked.times) == 2
        await trio.sleep(10 * again_s)
        assert len(asked.times) == 2, "nobody used it"


async def test_a_provider_that_does_not_answer_is_given_up(autojump_clock: MockClock) -> None:
    async with running(FakeProvider({}, seconds=100)) as catalog:
        with pytest.raises(ModelError) as caught:
            await catalog.listing("slow", LOCAL.base_url)
        assert caught.value.kind == "timeout"
        assert trio.current_time() == pytest.approx(LISTING_TIMEOUT_S, abs=0.1)


async def test_the_package_knows_public_models_and_their_provider_is_not_bothered() -> None:
    asked = FakeProvider({})
    async with running(asked) as catalog:
        assert catalog.facts("openai", OPENAI) == Facts()
        await until(lambda: catalog.facts("openai", OPENAI).context_window is not None)
        assert catalog.facts("openai", OPENAI).price
        assert asked.times == []


async def test_what_is_known_is_kept_for_the_next_daemon(tmp_path: Path) -> None:
    file = tmp_path / "catalog.json"
    async with running(FakeProvider({"qwen": Facts(8_192)}), file) as catalog:
        catalog.facts("local", LOCAL)
        await until(file.exists)
    assert Catalog(file, FakeProvider(), {}).facts("local", LOCAL) == Facts(8_192)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"listed":{"x":1}}', b"\xff" * 10])
def test_a_file_that_can_not_be_read_is_no_matter(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "catalog.json"
    file.write_bytes(content)
    trio.run(_looks_up_nothing, file)


async def _looks_up_nothing(file: Path) -> None:
    assert Catalog(file, FakeProvider(), {}).facts("local", LOCAL) == Facts()


async def test_what_another_package_said_is_asked_again(tmp_path: Path) -> None:
    file = tmp_path / "catalog.json"
    key = f"{OPENAI.base_url} {OPENAI.model}"
    kept = {"package": "older", "packaged": {key: {"context_window": 1}}}
    await trio.to_thread.run_sync(file.write_text, json.dumps(kept))
    assert Catalog(file, FakeProvider(), {}).facts("openai", OPENAI) == Facts()


async def test_a_file_that_can_not_be_written_is_no_matter(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere" / "catalog.json"
    async with running(FakeProvider({"qwen": Facts(8_192)}), nowhere) as catalog:
        catalog.facts("local", LOCAL)
        await until(lambda: catalog.facts("local", LOCAL) != Facts())


@pytest.mark.promise("G12")
async def test_no_list_is_too_long() -> None:
    asked = FakeProvider({f"m{n}": Facts(n + 1) for n in range(ENTRIES_MAX + 50)})
    async with running(asked) as catalog:
        await catalog.listing("big", LOCAL.base_url)
        assert catalog.facts("big", ModelRef(LOCAL.base_url, "m0")) == Facts()
        last = ModelRef(LOCAL.base_url, f"m{ENTRIES_MAX + 49}")
        assert catalog.facts("big", last).context_window


def test_only_models_of_public_servers_are_looked_up() -> None:
    assert is_public("https://api.openai.com/v1")
    assert is_public("https://x.openai.azure.com/openai")
    for host in ("127.0.0.1:8080", "[::1]:8080", "10.0.0.8", "localhost:11434", "gpu.lan:8000"):
        assert not is_public(f"http://{host}/v1")
    assert not is_public("")
