"""Turns that change one workspace at the same time: each one's patch has its own files.

Uses real git snapshots. Two sub-agents with separate scopes, a background sub-agent and their owner
look and write in any order.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from support.snapshotting import fail, services_with, snapshots_in
from tiller_daemon.session.background.claims import Claim, Claims
from tiller_daemon.session.calls.write_limits import WriteLimits
from tiller_daemon.session.reverting import put_back
from tiller_daemon.session.services import Services
from tiller_daemon.session.turns.turn_changes import TurnChanges
from tiller_daemon.snapshots.snapshots import Snapshots
from tiller_daemon.tools.write_scope import WriteScope
from tiller_protocol.items import Patch
from tiller_protocol.ops import Revert
from tiller_protocol.snapshot import Mark, Snapshot

WHO = {"owner": None, "a": ("a",), "b": ("b", "c/one"), "later": ("c/two", "d")}
PLACES = {"owner": "top", "a": "a/x", "b": "c/one", "later": "d/x"}


class Workspace:
    """A workspace, and the turns in it."""

    def __init__(self, root: Path, snapshots: Snapshots, services: Services) -> None:
        self.root = root / "w"
        for name in ("a", "b", "c", "d"):
            (self.root / name).mkdir(parents=True)
        self.snapshots = snapshots
        self.services = services
        self.claims = Claims()
        self.numbers = iter(range(10**6))
        self.turns = {who: self._turn(who) for who in WHO}
        self.written: dict[str, set[str]] = {who: set() for who in WHO}
        self.patches: dict[str, list[Patch]] = {who: [] for who in WHO}

    def _turn(self, who: str) -> TurnChanges:
        limits = WriteLimits(self.scope(who), self.claims if who == "owner" else Claims())
        return TurnChanges(self.services, str(self.root), who, fail, limits, set())

    def scope(self, who: str) -> WriteScope | None:
        names = WHO[who]
        return WriteScope(names, tuple(self.root / name for name in names)) if names else None

    def write(self, who: str) -> None:
        """Write a new file, or the scope itself where it is one."""
        place = self.root / PLACES[who]
        if who != "b":
            place = place.with_name(f"{place.name}{next(self.numbers)}")
        place.write_text(f"{who} {next(self.numbers)}\n")
        self.written[who].add(str(place.relative_to(self.root)))


ACTIONS = st.lists(
    st.tuples(st.sampled_from([*WHO]), st.sampled_from(["look", "write", "write"])), max_size=14
)


@settings(max_examples=25, deadline=None)
@given(ACTIONS, st.integers(0, 2**32 - 1))
def test_each_turn_has_the_files_that_it_changed_and_gives_back_no_other(
    actions: list[tuple[str, str]], seed: int
) -> None:
    trio.run(_play, actions, seed)


async def _play(actions: list[tuple[str, str]], seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with trio.open_nursery() as nursery:
            await _play_in(await _workspace(Path(directory), nursery), actions, seed)
            nursery.cancel_scope.cancel()


async def _workspace(root: Path, nursery: trio.Nursery) -> Workspace:
    snapshots = snapshots_in(root / "s")
    return Workspace(root, snapshots, await services_with(snapshots, nursery))


async def _play_in(world: Workspace, actions: list[tuple[str, str]], seed: int) -> None:
    (world.root / "mine").write_text("of the user\n")
    # The owner looks first, as its step begins with the `task` calls.
    await world.turns["owner"].before()
    claimed = world.scope("later")
    assert claimed
    world.claims.begin("t1", Claim("t1", claimed))
    await _all_at_once([world.turns[who].before for who in WHO])
    for who, what in actions:
        if what == "write":
            world.write(who)
        elif who != "owner":
            await _after(world, who)
            await world.turns[who].before()
    world.claims.end("t1")
    for who in ("later", "b", "a", "owner"):
        await _after(world, who)
    owners = world.written["owner"] | world.written["a"] | world.written["b"]
    for who, written in world.written.items():
        named = {name for patch in world.patches[who] for name in patch.files}
        assert named == (owners if who == "owner" else written), who
    who = Random(seed).choice([*WHO])
    await _revert(world, who)
    gone = owners if who == "owner" else world.written[who]
    for name in set().union(*world.written.values()):
        assert (world.root / name).exists() == (name not in gone), (who, name)
    assert (world.root / "mine").read_text() == "of the user\n"


async def _all_at_once(work: list[Callable[[], Any]]) -> None:
    async with trio.open_nursery() as nursery:
        for one in work:
            nursery.start_soon(one)


async def _after(world: Workspace, who: str) -> None:
    if patch := await world.turns[who].after():
        world.patches[who].append(patch)


async def _revert(world: Workspace, who: str) -> None:
    snapshot = Snapshot(who, workspace=str(world.root), items=[*world.patches[who]])
    snapshot.marks = [Mark("t", 0, 0)]
    result = await put_back(world.snapshots, snapshot, Revert(who, "t"), "X")
    assert result.conflicts == ()


async def test_no_call_begins_before_the_look_that_another_one_takes_is_complete(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """Two calls in a step begin at once; the step's patch has the first call's changes."""
    world = await _workspace(tmp_path, nursery)
    turn = world.turns["owner"]

    async def call(name: str) -> None:
        await turn.before()
        (world.root / name).write_text(name)

    await _all_at_once([lambda: call("one"), lambda: call("two"), lambda: call("three")])
    patch = await turn.after()
    assert patch
    assert patch.files == ("one", "three", "two")
    nursery.cancel_scope.cancel()
