"""What was read from files is as good as read now, whatever happens to the files in between."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from support.file_clock import wait_for_tick
from support.world import World
from tiller_daemon import stamps
from tiller_daemon.config import SandboxPolicy, TrustedProjects
from tiller_daemon.errors import RejectionError
from tiller_daemon.models.scripted import Script, ScriptStep, TextPart
from tiller_daemon.session.clock import Clock
from tiller_daemon.session.context.system_prompt import build_system_prompt
from tiller_daemon.session.inputs.slash_commands import expand_input
from tiller_daemon.session.services import Services
from tiller_daemon.session.sub_agents.agents import list_agents
from tiller_daemon.stamps import StampedCache, Stamps, look_along, look_at, look_into, one_moment
from tiller_daemon.turn.context import Permissions
from tiller_daemon.turn.prompt import GivenPrompt
from tiller_protocol.ops import UserInput
from tiller_protocol.settings import Rule
from tiller_protocol.snapshot import Snapshot

SHORT_TICK_NS = 12_000_000
"""A bit more than the longest tick of Linux; this test waits for it often."""

HEAD = "---\nname: {0}\ndescription: about {0}\n---\n{0}"

FILES = (
    "w/AGENTS.md", "w/CLAUDE.md", "w/.git", "w/.git/HEAD", "w/.tiller", "w/.tiller/config.toml",
    "w/.tiller/agents", "w/.tiller/agents/a.md", "w/.tiller/commands", "w/.tiller/commands/c.md",
    "w/.agents", "w/.agents/skills", "w/.agents/skills/s", "w/.agents/skills/s/SKILL.md",
    "w/secret/x.md", "c/AGENTS.md", "c/agents", "c/agents/b.md", "c/skills/t/SKILL.md",
    "c/commands/c.md", "c/agents/d.md", "w/.tiller/agents/e.md", "w/.agents/skills/u/SKILL.md",
    "w", "c", "spare", "spare/x.md", ".git/HEAD", "AGENTS.md",
)  # fmt: skip
"""Places below the root; `w` is the workspace, `c` the directory of the user's configuration."""

TEXTS = (
    HEAD.format("one"), HEAD.format("two"), "ref: refs/heads/one\n", "ref: refs/heads/two\n", "",
)  # fmt: skip
"""The first two, and the next two, have the same length."""

RULES = (Rule("read", "secret/*", "deny"),)


class Edit(NamedTuple):
    """A change of files, and how the values are compared after it."""

    how: str
    path: str
    other: str
    text: str
    waits: bool
    """Whether the clock ticks before the comparison, so that stamps are trusted."""


EDITS = st.builds(
    Edit,
    st.sampled_from(
        [
            "write",
            "write",
            "append",
            "replace",
            "delete",
            "rename",
            "link",
            "chmod",
            "touch",
            "forge",
        ]
    ),
    st.sampled_from(FILES),
    st.sampled_from(FILES),
    st.sampled_from(TEXTS),
    st.booleans(),
)


@pytest.fixture(scope="module")
def services() -> Services:
    """The services of a daemon that has ended; only what reads files is used."""

    async def boot() -> Services:
        async with trio.open_nursery() as nursery:
            world = await World.start(nursery, {"s": Script((ScriptStep((TextPart("x"),)),))})
            nursery.cancel_scope.cancel()
        return world.services

    return trio.run(boot)


@pytest.fixture(autouse=True)
def short_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamps, "TICK_NS", SHORT_TICK_NS)


def daemon_at(root: Path, services: Services) -> Services:
    """The services of a daemon at this root that has read nothing yet."""
    configuration = services.user.configuration()
    user = replace(
        services.user,
        projects=TrustedProjects(root / "trust", lambda: configuration, lambda _: configuration),
        config_directory=root / "c",
        home=root,
        documents=StampedCache(),
    )
    return replace(services, user=user, clock=Clock(lambda: 1.7e9, lambda: 0.0))


def values(services: Services, root: Path) -> list[object]:
    """Everything that a turn begins with and that depends on files."""
    workspace = str(root / "w")
    permissions = Permissions(RULES, "ask", read_only=False, sandbox=SandboxPolicy("full_access"))
    snapshot = Snapshot("x", workspace=workspace)
    found: list[object] = []
    readers: tuple[Callable[[], object], ...] = (
        lambda: services.user.projects.inspect(workspace),
        lambda: list_agents(services, workspace),
        lambda: build_system_prompt(services, workspace, GivenPrompt(""), permissions),
        lambda: expand_input(services, snapshot, UserInput("x", "/c now")),
    )
    with one_moment():
        for read in readers:
            try:
                found.append(read())
            except RejectionError as error:
                found.append(error.message)
    return found


def apply(edit: Edit, root: Path) -> None:
    path, other = root / edit.path, root / edit.other
    with suppress(OSError, shutil.Error):
        match edit.how:
            case "write":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(edit.text)
            case "append":
                with path.open("a") as stream:
                    stream.write(edit.text)
            case "replace":
                (root / "new").write_text(edit.text)
                (root / "new").replace(path)
            case "delete":
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            case "rename":
                path.rename(other)
            case "link":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(other)
            case "chmod":
                path.chmod(0o400 if edit.text == TEXTS[0] else 0o750)
            case "forge":
                path.write_text(edit.text)
                os.utime(path, ns=(1_000_000_000, 1_000_000_000))
            case _:
                os.utime(path, ns=(1_000_000_000, 1_000_000_000))


def start_tree(root: Path) -> None:
    for name in ("w/AGENTS.md", "w/.tiller/agents/a.md", "w/.tiller/commands/c.md", "c/AGENTS.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(TEXTS[0])
    for name in ("w/.git/HEAD", "w/.agents/skills/s/SKILL.md", "c/agents/b.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(TEXTS[2 if "HEAD" in name else 0])


def edit(how: str, path: str, other: str = "spare") -> Edit:
    return Edit(how, path, other, TEXTS[1], waits=True)


FORGED = [edit("touch", "w/AGENTS.md"), edit("forge", "w/AGENTS.md")]
NEW_NAMES = [edit("write", "c/agents/d.md"), edit("write", "w/.agents/skills/u/SKILL.md")]
MOVED_AND_LINKED = [edit("rename", "w", "spare"), edit("link", "w", "spare")]
TARGET = [
    edit("link", "c/skills/t/SKILL.md", "w/CLAUDE.md"),
    Edit("write", "w/CLAUDE.md", "spare", TEXTS[0], waits=False),
]
APPEARS = [edit("delete", "w/.tiller"), edit("write", "w/.tiller/agents/a.md")]


@example(FORGED)
@example(NEW_NAMES)
@example(MOVED_AND_LINKED)
@example(APPEARS)
@example(TARGET)
@settings(max_examples=60, deadline=None)
@given(edits=st.lists(EDITS, max_size=6))
def test_what_a_turn_begins_with_is_what_a_new_daemon_would_read(
    services: Services, tmp_path_factory: pytest.TempPathFactory, edits: list[Edit]
) -> None:
    root = tmp_path_factory.mktemp("t")
    start_tree(root)
    daemon = daemon_at(root, services)
    workspace = str(root / "w")
    daemon.user.projects.trust(workspace, daemon.user.projects.inspect(workspace).digest)
    wait_for_tick(root)
    assert values(daemon, root) == values(daemon_at(root, services), root)
    for one in edits:
        apply(one, root)
        if one.waits:
            wait_for_tick(root)
        assert values(daemon, root) == values(daemon_at(root, services), root)
    shutil.rmtree(root)


class Reader:
    """Reads a file, and counts how often."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads = 0

    def __call__(self) -> str | None:
        self.reads += 1
        look_at(self.path)
        try:
            return self.path.read_text()
        except OSError as error:
            stamps.failed(error)
            return None


def test_a_young_stamp_is_not_trusted_and_an_old_one_is(tmp_path: Path) -> None:
    """A second change within one tick of the clock would leave the stamp as it is."""
    read, cache = Reader(tmp_path / "a"), StampedCache()
    read.path.write_text("x")
    for reads in (1, 2, 3):
        assert (cache.get("a", read), read.reads) == ("x", reads)
    wait_for_tick(tmp_path)
    for _ in range(3):
        assert (cache.get("a", read), read.reads) == ("x", 4)


def test_a_time_in_whole_seconds_is_trusted_later() -> None:
    changed_ns = 1_700_000_000_000_000_000
    coarse, fine = stamps.WHOLE_SECONDS_TICK_NS, SHORT_TICK_NS
    for changed, tick_ns in ((changed_ns, coarse), (changed_ns + 1, fine)):
        assert stamps.is_young(changed, changed + tick_ns - 1)
        assert not stamps.is_young(changed, changed + tick_ns)


def test_what_is_missing_costs_no_read_and_is_seen_when_it_appears(tmp_path: Path) -> None:
    read, cache = Reader(tmp_path / "b" / "c" / "a"), StampedCache()
    for _ in range(3):
        assert (cache.get("a", read), read.reads) == (None, 1)
    (tmp_path / "other").touch()
    assert (cache.get("a", read), read.reads) == (None, 1)
    read.path.parent.mkdir(parents=True)
    assert (cache.get("a", read), read.reads) == (None, 2)
    read.path.write_text("x")
    assert (cache.get("a", read), read.reads) == ("x", 3)


def test_a_failure_that_may_pass_by_itself_is_not_kept(tmp_path: Path) -> None:
    """For example when too many files are open. A directory fails for root as well."""
    read, cache = Reader(tmp_path), StampedCache()
    wait_for_tick(tmp_path)
    for reads in (1, 2, 3):
        assert (cache.get("a", read), read.reads) == (None, reads)


def test_a_value_made_of_another_changes_with_it(tmp_path: Path) -> None:
    read, cache = Reader(tmp_path / "a"), StampedCache()
    read.path.write_text("x")
    wait_for_tick(tmp_path)
    # The inner value is there before the outer one is read for the first time.
    cache.get("inner", read)
    assert cache.get("outer", lambda: f"<{cache.get('inner', read)}>") == "<x>"
    for text in ("y", "z"):
        read.path.write_text(text)
        wait_for_tick(tmp_path)
        assert cache.get("outer", lambda: f"<{cache.get('inner', read)}>") == f"<{text}>"


def test_no_more_values_are_kept_than_the_limit(tmp_path: Path) -> None:
    cache, readers = StampedCache(), [Reader(tmp_path / "a") for _ in range(stamps.ENTRIES_MAX + 1)]
    for number, read in enumerate(readers):
        cache.get(number, read)
        cache.get(0, readers[0])
    cache.get(1, readers[1])
    assert (readers[0].reads, readers[1].reads, readers[2].reads) == (1, 2, 1)


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    found = Stamps()
    found.record(lambda: (look_along(tmp_path / "a" / "c"), look_at(tmp_path / "a" / "c")))
    wait_for_tick(tmp_path)
    again = Stamps()
    again.record(lambda: (look_along(tmp_path / "a" / "c"), look_into(tmp_path / "b")))
    assert again.are_current()
    (tmp_path / "b").unlink()
    assert not again.are_current()
