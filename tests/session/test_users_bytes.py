"""No revert loses the user's bytes, whatever the agent and the user do, and in which order.

A machine lets an agent take steps with real git snapshots. The user saves files at any moment when
no call is running: even while a response streams, and right after the turn. Files may be ignored,
secret, or in a repository of their own, and the agent may change what is ignored and move files.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from support.snapshotting import fail, services_with, snapshots_in
from tiller_daemon.session.background.claims import Claims
from tiller_daemon.session.calls.write_limits import WriteLimits
from tiller_daemon.session.reverting import put_back
from tiller_daemon.session.services import Services
from tiller_daemon.session.turns.turn_changes import TurnChanges
from tiller_daemon.snapshots.snapshots import Snapshots
from tiller_daemon.snapshots.taking import CLOCK_ERROR_NS
from tiller_protocol.answers import RevertResult
from tiller_protocol.items import Patch
from tiller_protocol.ops import Revert, Unrevert
from tiller_protocol.snapshot import Mark, Reverted, Snapshot

PATHS = ("a", "b", "x.ign", "y.ign", ".env", "d/a", "d/x.ign", "nest/a", "out/a")
IGNORES = ("", "*.ign\n", "d/\n", "*.ign\nout/\n", "a\n")
WRITES = st.tuples(st.just("write"), st.sampled_from(PATHS))
USERS = st.one_of(
    WRITES,
    st.tuples(st.just("remove"), st.sampled_from(PATHS)),
    st.tuples(st.just("ignore"), st.sampled_from(IGNORES)),
    st.tuples(st.just("repository"), st.just("nest")),
)
AGENTS = st.one_of(
    USERS,
    st.tuples(st.just("append"), st.sampled_from(PATHS)),
    st.tuples(st.just("move"), st.tuples(st.sampled_from(PATHS), st.sampled_from(PATHS))),
    st.tuples(st.just("no repository"), st.just("nest")),
)
"""An agent also writes over and removes files of the user. That is its own doing, no revert's."""

Action = tuple[str, Any]
Some = st.lists(USERS, max_size=2)


class UsersBytes(RuleBasedStateMachine):
    """One workspace with one session, of which only the patches matter."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.workspace = self.place / "w"
        self.workspace.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=self.workspace, check=True)
        self.snapshots = snapshots_in(self.place / "s", lambda _, name: name.endswith(".env"))
        self.services = trio.run(_services, self.snapshots)
        self.items: list[Patch] = []
        self.turns: list[int] = []
        self.reverted: list[tuple[tuple[Patch, ...], RevertResult, set[str]]] = []
        self.number = 0

    def teardown(self) -> None:
        shutil.rmtree(self.place)

    @rule(actions=Some)
    def the_user_changes_files(self, actions: list[Action]) -> None:
        self.do(actions, "user")

    @rule(
        steps=st.lists(
            st.tuples(Some, Some, st.lists(AGENTS, min_size=1, max_size=3), Some),
            min_size=1,
            max_size=3,
        ),
        interrupted=st.booleans(),
    )
    def the_agent_has_a_turn(
        self,
        steps: list[tuple[list[Action], list[Action], list[Action], list[Action]]],
        *,
        interrupted: bool,
    ) -> None:
        self.turns.append(len(self.items))
        self.reverted.clear()
        limits = WriteLimits(None, Claims())

        async def turn() -> None:
            changes = TurnChanges(self.services, str(self.workspace), "S", fail, limits, set())
            for number, (streaming, asked, agents, after) in enumerate(steps, 1):
                # The response has a call that may write, and is not complete yet.
                await self.meanwhile(changes.prepare, streaming)
                self.do(asked, "user")
                self.let_clock_tick()
                await changes.before()
                self.do(agents, "agent")
                is_last = interrupted and number == len(steps)
                end = changes.finish if is_last else changes.after
                if patch := await self.meanwhile(end, after):
                    self.items.append(patch)

        trio.run(turn)

    @precondition(lambda self: self.turns)
    @rule(choose=st.randoms(use_true_random=False))
    def it_is_reverted(self, choose: Any) -> None:
        position = choose.choice(self.turns)
        before = self.tokens()
        items = tuple(self.items[position:])
        result = self.put_back(Revert("S", "t"), items)
        assert before <= self.tokens(), "a revert has lost what the user wrote"
        del self.items[position:]
        self.turns = [turn for turn in self.turns if turn < position]
        self.reverted.append((items, result, self.tokens() - before))

    @precondition(lambda self: self.reverted)
    @rule()
    def the_revert_is_undone(self) -> None:
        items, result, restored = self.reverted.pop()
        before = self.tokens()
        self.put_back(Unrevert("S"), items, result)
        assert before - restored <= self.tokens(), "an unrevert has lost what the user wrote"
        self.turns.append(len(self.items))
        self.items += items

    def put_back(
        self, op: Revert | Unrevert, items: tuple[Patch, ...], earlier: RevertResult | None = None
    ) -> RevertResult:
        session = Snapshot("S", workspace=str(self.workspace), items=[*items])
        session.marks = [Mark("t", 0, 0)]
        if earlier:
            session.reverted = [Reverted(0, items, (), conflicts=earlier.conflicts)]

        async def work() -> RevertResult:
            return await put_back(self.snapshots, session, op, "X")

        result = trio.run(work)
        self.snapshots.confirm_restore(str(self.workspace))
        return result

    async def meanwhile(
        self, work: Callable[[], Awaitable[Patch | None]], users: list[Action]
    ) -> Patch | None:
        """Let the user change files during and after some work of the daemon."""
        done: list[Patch | None] = []

        begun = trio.Event()

        async def run() -> None:
            begun.set()
            done.append(await work())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await begun.wait()
            self.let_clock_tick()
            for action in users:
                self.do([action], "user")
                await trio.lowlevel.checkpoint()
            self.let_clock_tick()
        return done[0]

    def do(self, actions: list[Action], who: str) -> None:
        for what, where in actions:
            source = self.workspace / (where[0] if what == "move" else where)
            if what == "ignore":
                (self.workspace / ".gitignore").write_text(where)
            elif what == "repository":
                subprocess.run(["git", "init", "-q", source], check=True)
            elif what == "no repository":
                shutil.rmtree(source / ".git", ignore_errors=True)
            elif what == "write":
                self.number += 1
                source.parent.mkdir(exist_ok=True)
                source.write_text(f"{who} {self.number}\n")
            elif source.is_file() and what == "remove":
                source.unlink()
            elif source.is_file() and what == "append":
                with source.open("a") as stream:
                    stream.write(f"{who}\n")
            elif source.is_file() and what == "move":
                target = self.workspace / where[1]
                target.parent.mkdir(exist_ok=True)
                source.rename(target)

    def tokens(self) -> set[str]:
        """Return everything that the user has written and that is in a file now."""
        return {
            line
            for path in self.workspace.rglob("*")
            if path.is_file() and ".git" not in path.parts
            for line in path.read_text().splitlines()
            if line.startswith("user ")
        }

    def let_clock_tick(self) -> None:
        """Return when a change gets another time than all changes until now."""
        probe = self.place / "probe"
        begun_ns = time.time_ns()
        probe.write_text("")
        while probe.stat().st_ctime_ns <= begun_ns + 2 * CLOCK_ERROR_NS:
            probe.write_text("")


async def _services(snapshots: Snapshots) -> Services:
    async with trio.open_nursery() as nursery:
        services = await services_with(snapshots, nursery)
        nursery.cancel_scope.cancel()
    return services


class TestUsersBytes(UsersBytes.TestCase):
    """A few runs."""

    settings = settings(max_examples=5, stateful_step_count=5, deadline=None)


@pytest.mark.nightly
class TestUsersBytesOften(UsersBytes.TestCase):
    """Many runs."""

    settings = settings(max_examples=40, stateful_step_count=8, deadline=None)
