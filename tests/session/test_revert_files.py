"""B55 as a property: it holds whatever anybody does to files, and however often it is reverted.

The test models files as a dictionary. Only the agent's content may ever be lost, an `unrevert` is
the inverse of its `revert`, and the project's own `.git` stays the same, byte for byte.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from support.snapshotting import snapshots_in
from tiller_daemon.files.restore import GitEntry
from tiller_daemon.session.reverting import moves_back, put_back
from tiller_daemon.snapshots.git_trees import TreeChange
from tiller_protocol.answers import RevertResult
from tiller_protocol.events import (
    AnyBody,
    Event,
    HistoryReverted,
    ItemCompleted,
    ItemStarted,
    SessionCreated,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.fold import fold
from tiller_protocol.items import ItemId, Patch, Usage
from tiller_protocol.ops import Revert, Unrevert
from tiller_protocol.settings import Settings, TurnContextShown
from tiller_protocol.snapshot import Snapshot

PATHS = ("a", "b", "d", "d/a", "d/b", "d/e/f")
CONTEXT = TurnContextShown("/w", "build", "p/m", "", "ask", 9, (), 1000)
Actions = list[tuple[str, bool]]
ACTIONS = st.lists(st.tuples(st.sampled_from(PATHS), st.booleans()), min_size=1, max_size=3)

Files = dict[str, str]


class Reverts(RuleBasedStateMachine):
    """One workspace, and one session that has only the events that matter."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.workspace = self.place / "w"
        self.workspace.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=self.workspace, check=True)
        self.its_git = self._git()
        self.snapshots = snapshots_in(self.place / "s")
        self.session = Snapshot("S")
        self.tell(SessionCreated(str(self.workspace), Settings()))
        self.number = 0
        self.turn = ""
        self.before_reverts: list[tuple[Files, set[str]]] = []
        self.steps: dict[tuple[str, int], tuple[Files, Files]] = {}

    def teardown(self) -> None:
        assert self._git() == self.its_git
        shutil.rmtree(self.place)

    @initialize(actions=ACTIONS)
    def begin(self, actions: Actions) -> None:
        self.do(actions, "user")

    @rule(actions=ACTIONS)
    def somebody_else_changes_files(self, actions: Actions) -> None:
        self.do(actions, "user")

    @rule(steps=st.lists(ACTIONS, min_size=1, max_size=3), between=st.lists(ACTIONS, max_size=2))
    def the_agent_has_a_turn(self, steps: list[Actions], between: list[Actions]) -> None:
        self.turn = self.name("t")
        self.tell(TurnStarted(CONTEXT))
        for step, actions in enumerate(steps, 1):
            self.tell(StepStarted(step))
            before, files = self.take(), self.files()
            self.do(actions, "agent")
            after = self.take()
            self.steps[self.turn, step] = (files, self.files())
            if after != before:
                patch = Patch(ItemId(self.name("i")), (), before, after)
                self.tell(ItemStarted(patch))
                self.tell(ItemCompleted(patch))
            self.tell(StepEnded(step, "stop", Usage()))
            if step <= len(between):
                self.do(between[step - 1], "user")
        self.tell(TurnEnded("completed", len(steps), Usage(), 0.0))
        self.before_reverts.clear()

    @precondition(lambda self: self.session.marks)
    @rule(choose=st.randoms(use_true_random=False))
    def it_is_reverted(self, choose: Any) -> None:
        mark = choose.choice(self.session.marks)
        before = self.files()
        expected = self.expected(before, self.session.marks.index(mark))
        result = self.put_back(Revert("S", mark.turn_id, mark.step or None))
        after = self.files()
        for path in before.keys() | expected.keys():
            if after.get(path) != expected.get(path):
                assert after.get(path) == before.get(path)
                assert any(_in_the_way(path, other) for other in after)
                assert path in result.conflicts
        for path, content in before.items():
            if content.startswith("user"):
                assert after.get(path) == content, f"{path} was the user's"
        for path in result.files:
            assert before.get(path) != after.get(path)
        for path in (before.keys() | after.keys()) - set(result.files):
            assert before.get(path) == after.get(path), f"{path} was not said to go back"
        self.tell(
            HistoryReverted(
                mark.seq,
                undone=False,
                conflicts=result.conflicts,
                before_turn=mark.turn_id,
                before_step=mark.step,
            )
        )
        self.before_reverts.append((before, set(result.files)))

    @precondition(lambda self: self.session.reverted)
    @rule()
    def the_revert_is_undone(self) -> None:
        now = self.files()
        result = self.put_back(Unrevert("S"))
        after = self.files()
        before, put_back = self.before_reverts.pop()
        for path in put_back - set(result.conflicts):
            assert after.get(path) == before.get(path), f"{path} did not come again"
        for path, content in now.items():
            if content.startswith("user") and path not in put_back:
                assert after.get(path) == content, f"{path} was the user's"
        for path in result.conflicts:
            assert now.get(path) == after.get(path), f"{path} was said to be left"
        self.tell(HistoryReverted(self.session.seq, undone=True, conflicts=result.conflicts))

    @precondition(lambda self: self.session.marks)
    @rule(choose=st.randoms(use_true_random=False))
    def a_revert_and_its_undoing_change_nothing(self, choose: Any) -> None:
        before = self.files()
        self.it_is_reverted(choose)
        self.the_revert_is_undone()
        assert self.files() == before

    def expected(self, now: Files, first: int) -> Files:
        """Return the files as they should be once the steps from mark `first` on are reverted."""
        found = dict(now)
        marks = self.session.marks[first:]
        steps = [self.steps[m.turn_id, m.step] for m in marks if m.step]
        for path in PATHS:
            told = [(b.get(path), a.get(path)) for b, a in steps if b.get(path) != a.get(path)]
            whole = all(end == begin for (_, end), (begin, _) in pairwise(told))
            if told and whole and now.get(path) == told[-1][1]:
                found.pop(path, None)
                found |= {path: told[0][0]} if told[0][0] is not None else {}
        return found

    def do(self, actions: Actions, who: str) -> None:
        for path, writes in actions:
            self.remove(path)
            if writes:
                for parent in (self.workspace / path).parents:
                    if parent.is_file():
                        parent.unlink()
                (self.workspace / path).parent.mkdir(parents=True, exist_ok=True)
                (self.workspace / path).write_text(self.name(f"{who} "))

    def remove(self, path: str) -> None:
        whole = self.workspace / path
        if whole.is_dir():
            shutil.rmtree(whole)
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                whole.unlink()

    def files(self) -> Files:
        return {
            path.relative_to(self.workspace).as_posix(): path.read_text()
            for path in self.workspace.rglob("*")
            if path.is_file() and ".git" not in path.parts
        }

    def take(self) -> str:
        return _run(lambda: self.snapshots.take(str(self.workspace), "S")).tree

    def put_back(self, op: Revert | Unrevert) -> RevertResult:
        result = _run(lambda: put_back(self.snapshots, self.session, op, "X"))
        self.snapshots.confirm_restore(str(self.workspace))
        assert not result.partial
        return result

    def tell(self, body: AnyBody) -> None:
        number = self.session.seq + 1
        fold(
            self.session, Event(number, "S", float(number), body, getattr(self, "turn", "") or None)
        )

    def name(self, kind: str) -> str:
        self.number += 1
        return f"{kind}{self.number}"

    def _git(self) -> dict[str, bytes]:
        git = self.workspace / ".git"
        return {str(path): path.read_bytes() for path in git.rglob("*") if path.is_file()}


def _in_the_way(path: str, other: str) -> bool:
    """Whether one path needs a directory where the other has a file."""
    return path.startswith(f"{other}/") or other.startswith(f"{path}/")


def _run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await work()

    return trio.run(main)


TestReverts = Reverts.TestCase
TestReverts.settings = settings(max_examples=15, stateful_step_count=10, deadline=None)


@pytest.mark.promise("B55")
def test_a_file_that_somebody_changed_between_two_steps_stays_and_others_go_back() -> None:
    old, new, somebodys = (GitEntry(0o100644, blob) for blob in ("old", "new", "somebody's"))
    steps = [
        [TreeChange("both", old, new, 1, 1), TreeChange("ours", None, new, 1, 0)],
        [TreeChange("both", somebodys, new, 1, 1), TreeChange("as it was", new, new, 0, 0)],
    ]
    moves, conflicting = moves_back(steps)
    assert conflicting == ("both",)
    assert [move.path for move in moves] == ["ours"]


def test_a_file_comes_back_where_the_agent_left_only_directories() -> None:
    reverts = Reverts()
    try:
        reverts.do([("d", True)], "user")
        reverts.the_agent_has_a_turn(steps=[[("d/e/f", True), ("d/e/f", False)]], between=[])
        assert (reverts.workspace / "d/e").is_dir()
        reverts.it_is_reverted(Random(0))
        assert reverts.files() == {"d": "user 1"}
        reverts.the_revert_is_undone()
        assert reverts.files() == {}
    finally:
        reverts.teardown()
