"""A changed configuration counts for the very next op, and an unchanged one is not read again."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from support.file_clock import wait_for_tick
from tiller_daemon.config import Configuration, LiveConfiguration, load_configuration
from tiller_protocol.places import Places


class Loader:
    """Loads the configuration of a directory, and counts how often."""

    def __init__(self, directory: Path) -> None:
        self.loads = 0
        self.file = directory / "config.toml"
        self._places = Places(directory, directory, directory)

    def __call__(self) -> Configuration:
        self.loads += 1
        return load_configuration(self._places, {})


@pytest.fixture
def load(tmp_path: Path) -> Loader:
    return Loader(tmp_path)


def started(load: Loader) -> LiveConfiguration:
    """As at the start of a daemon."""
    return LiveConfiguration(load(), load, load.file)


async def test_a_file_that_has_not_changed_is_not_read(load: Loader) -> None:
    load.file.write_text("max_steps = 5")
    wait_for_tick(load.file.parent)
    live = started(load)
    assert not await live.refresh()
    loads = load.loads
    for _ in range(3):
        assert live.is_current
        assert not await live.refresh()
    assert load.loads == loads


async def test_every_edit_counts_at_once_however_fast_they_follow(load: Loader) -> None:
    """Same size, same file, and nearly the same time."""
    load.file.write_text("max_steps = 5")
    live = started(load)
    for steps in (6, 7, 8, 9):
        load.file.write_text(f"max_steps = {steps}")
        assert await live.refresh()
        assert live.now.max_steps == steps
    assert not await live.refresh()


EDITS = st.one_of(
    st.integers(1, 9).map(lambda steps: f"max_steps = {steps}"),
    st.just("max_steps = x"),
    st.none(),
)
"""Valid, invalid, gone."""


@given(edits=st.lists(st.tuples(EDITS, st.booleans()), max_size=8))
def test_after_any_edits_the_last_valid_one_counts(edits: list[tuple[str | None, bool]]) -> None:
    """Each is written in place, or in another file that takes its name."""
    with TemporaryDirectory() as directory:
        load = Loader(Path(directory))
        live = started(load)
        expected = live.now.max_steps
        for text, in_place in edits:
            if text is None:
                load.file.unlink(missing_ok=True)
            elif in_place:
                load.file.write_text(text)
            else:
                load.file.with_suffix(".new").write_text(text)
                load.file.with_suffix(".new").rename(load.file)
            trio.run(live.refresh)
            if text is None:
                expected = Configuration().max_steps
            elif not text.endswith("x"):
                expected = int(text[-1])
            assert live.now.max_steps == expected
            assert bool(live.problem) == (text is not None and text.endswith("x"))


async def test_a_file_that_appears_or_disappears_counts(load: Loader) -> None:
    live = started(load)
    wait_for_tick(load.file.parent)
    assert not await live.refresh()
    load.file.write_text("max_steps = 5")
    assert await live.refresh()
    load.file.unlink()
    assert await live.refresh()
    assert live.now == Configuration()


async def test_a_prompt_file_belongs_to_it(load: Loader) -> None:
    prompt = load.file.with_name("plan.md")
    prompt.write_text("Plan.")
    load.file.write_text('[agents.plan]\nprompt_file = "plan.md"')
    wait_for_tick(load.file.parent)
    live = started(load)
    for text in ("Plan well.", "Plan it.."):
        prompt.write_text(text)
        assert await live.refresh()
        assert live.now.agents["plan"].prompt == text
    prompt.unlink()
    assert not await live.refresh()
    assert "plan.md does not exist" in live.problem
    prompt.write_text("Plan again.")
    assert await live.refresh()
    assert (live.now.agents["plan"].prompt, live.problem) == ("Plan again.", "")


async def test_a_mistake_keeps_the_old_one_until_it_is_repaired(load: Loader) -> None:
    load.file.write_text("max_steps = 5")
    live = started(load)
    load.file.write_text("max_steps = x")
    assert not await live.refresh()
    assert live.problem
    assert live.now.max_steps == 5
    # The same configuration as before: nothing has changed, but the problem is gone.
    load.file.write_text("max_steps = 5")
    assert not await live.refresh()
    assert not live.problem


async def test_whatever_was_read_at_the_start_counts(load: Loader) -> None:
    """Also a family's prompt, and a change between the reading and the first op."""
    prompt = load.file.with_name("qwen.md")
    prompt.write_text("Code.")
    load.file.write_text('[families.qwen]\nmodels = ["qwen*"]\nprompt_file = "qwen.md"')
    wait_for_tick(load.file.parent)
    live = started(load)
    prompt.write_text("Code well.")
    assert await live.refresh()
    assert live.now.families["qwen"].prompt == "Code well."
