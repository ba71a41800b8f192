"""A revert changes only what is known to be the agent's; everything else stays and is named."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, text
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_protocol.answers import RevertResult
from tiller_protocol.events import TurnEnded, TurnStarted, WarningRaised
from tiller_protocol.items import Patch
from tiller_protocol.ops import Interrupt, Revert, Unrevert

IGNORED = "echo mine > data.csv; echo data.csv > .gitignore"
NESTED = "mkdir nest; git -C nest init -q; echo mine > nest/n"
SECRET = "echo mine > .env"
LARGE = "head -c 17000000 /dev/zero > big"
FOLDER = "mkdir build; echo mine > build/x; echo build/ > .gitignore"
OUTSIDE = "mkdir ../out; echo mine > ../out/x"


async def turn(frontend: Frontend, workspace: Path, command: str) -> str:
    """Let the agent run a command in a new session, and return the session."""
    session_id = await frontend.session(
        workspace, calls(bash(command)), always("done"), approve="always"
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    return session_id


async def revert(frontend: Frontend, session_id: str) -> RevertResult:
    log = await frontend.log(session_id)
    (turn_id,) = [event.turn_id for event in log if isinstance(event.body, TurnStarted)]
    assert turn_id
    result = await frontend.must(Revert(session_id, turn_id))
    assert isinstance(result, RevertResult)
    return result


async def run(command: str, workspace: Path) -> None:
    await trio.run_process(["sh", "-ec", command], cwd=workspace)


@pytest.mark.parametrize(
    ("before", "command", "kept"),
    [
        (IGNORED, ": > .gitignore", "data.csv"),
        (IGNORED, "sed -i s/i/I/ data.csv; : > .gitignore", "data.csv"),
        (IGNORED, "mv data.csv table.csv", "table.csv"),
        (f"git checkout -qb b; {IGNORED}", "rm .gitignore; git checkout -q -", "data.csv"),
        (NESTED, "rm -rf nest/.git", "nest/n"),
        (NESTED, "mv nest other; rm -rf other/.git", "other/n"),
        (SECRET, "mv .env env.txt", "env.txt"),
        (LARGE, "truncate -s 1000 big", "big"),
        (FOLDER, "mv build/x x", "x"),
        (FOLDER, "mv build sources", "sources/x"),
        (OUTSIDE, "mv ../out/x .", "x"),
    ],
)
@pytest.mark.promise("B55")
async def test_what_no_snapshot_had_before_stays_and_is_named(
    frontend: Frontend, workspace: Path, before: str, command: str, kept: str
) -> None:
    await run(before, workspace)
    session_id = await turn(
        frontend, workspace, f"{command}; echo new > of-agent; mv greeting.txt moved"
    )
    content = (workspace / kept).read_bytes()
    result = await revert(frontend, session_id)
    assert (workspace / kept).read_bytes() == content
    assert kept in result.without_snapshot
    assert {"of-agent", "moved"} <= {*result.removed}
    assert (workspace / "greeting.txt").read_text() == "hello\n"
    await frontend.must(Unrevert(session_id))
    assert (workspace / kept).read_bytes() == content
    assert (workspace / "of-agent").read_text() == "new\n"


@pytest.mark.parametrize("place", ["home", "state", "config"])
async def test_the_daemons_own_files_are_in_no_snapshot(
    frontend: Frontend, daemon: Daemon, place: str
) -> None:
    """Not even if an ignore file allows them."""
    workspace = {"home": daemon.home, "state": daemon.places.state, "config": daemon.places.config}[
        place
    ]
    (daemon.home / ".gitignore").write_text("!t\n!t/**\n")
    for name in ("one", "two"):
        session_id = await turn(frontend, workspace, f"echo {name} > {name}")
        result = await revert(frontend, session_id)
        log = await frontend.log(session_id)
        warnings = [one.body.message for one in log if isinstance(one.body, WarningRaised)]
        patches = [
            one for one in (await frontend.snapshot(session_id)).items if isinstance(one, Patch)
        ]
        if place == "home":
            own = daemon.places.state.parent.name
            assert name in result.removed
            files = [path for patch in patches for path in patch.files]
            assert not [path for path in files if path.startswith(f"{own}/")]
            assert not [text for text in warnings if "snapshot" in text]
        else:
            assert result.partial
            assert "one of tiller's own directories" in warnings[0]


async def test_what_the_user_saves_after_the_end_of_an_interrupted_turn_stays(
    frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace, "gate")
    session_id = await frontend.session(
        workspace,
        calls(bash(f"echo half > half; {gate.command}")),
        always("done"),
        approve="always",
    )
    await frontend.say(session_id)
    await gate.reached()
    await frontend.must(Interrupt(session_id))
    await frontend.until_body(session_id, TurnEnded)
    (workspace / "mine").write_text("mine")
    (workspace / "greeting.txt").write_text("mine")
    result = await revert(frontend, session_id)
    assert "half" in result.removed
    assert (workspace / "mine").read_text() == "mine"
    assert (workspace / "greeting.txt").read_text() == "mine"


async def test_a_failed_snapshot_is_told_once_in_each_session_and_tried_again(
    frontend: Frontend, daemon: Daemon, workspace: Path
) -> None:
    async def say(session_id: str, number: int) -> None:
        await frontend.say(session_id)
        await frontend.turn_ended(session_id, number)

    async def told(session_id: str) -> int:
        log = await frontend.log(session_id)
        codes = [one.body.code for one in log if isinstance(one.body, WarningRaised)]
        return codes.count("snapshot_failed")

    store = daemon.places.state / "snapshots"
    kept = store.rename(store.with_name("kept")) if store.exists() else None
    store.write_text("in the way")
    write = calls(bash("date +%N >> f"))
    steps = (write, write, text("ok"), write, text("ok"), write, text("ok"))
    first = await frontend.session(workspace, *steps, approve="always")
    second = await frontend.session(workspace, *steps, approve="always")
    for number in (1, 2):
        await say(first, number)
        await say(second, number)
    assert [await told(first), await told(second)] == [1, 1]
    store.unlink()
    if kept:
        kept.rename(store)
    await say(first, 3)
    (*_, patch) = [one for one in (await frontend.snapshot(first)).items if isinstance(one, Patch)]
    assert patch.files == ("f",)
    assert patch.tree_after


async def test_a_revert_that_a_kill_cuts_off_does_all_or_nothing_and_can_be_repeated(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    """The same holds for its undoing."""
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    places = [workspace / f"{number}.txt" for number in range(100)]

    def contents() -> set[str]:
        return {place.read_text() for place in places}

    for place in places:
        place.write_text("old")
    session_id = await turn(frontend, workspace, "for f in *.txt; do printf new > $f; done")
    turn_id = (await frontend.snapshot(session_id)).marks[0].turn_id
    for op, now, later in (
        (Revert(session_id, turn_id), "new", "old"),
        (Unrevert(session_id), "old", "new"),
    ):
        assert contents() == {now}
        async with trio.open_nursery() as asking:
            asking.start_soon(frontend.ask, op)
            while contents() == {now}:
                await trio.lowlevel.checkpoint()
            daemon.kill9()
            asking.cancel_scope.cancel()
        daemon.start()
        await frontend.reconnect()
        is_reverted = bool((await frontend.snapshot(session_id)).reverted)
        assert contents() == ({"old"} if is_reverted else {"new"})
        if contents() == {now}:
            await frontend.must(op)
        assert contents() == {later}
    await frontend.close()
