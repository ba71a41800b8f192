"""Files are reverted together with history, but changes made by somebody else stay."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, read, text, write
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart
from tiller_daemon.session.reverting import PATHS_CHARS_MAX
from tiller_protocol.answers import RevertResult, SessionDiffResult, SessionResult, Started
from tiller_protocol.events import TurnEnded, TurnStarted, WarningRaised
from tiller_protocol.items import Patch
from tiller_protocol.ops import (
    Interrupt,
    Revert,
    SessionDelete,
    SessionDiff,
    SessionGet,
    Shell,
    Unrevert,
)
from tiller_protocol.settings import Rule


def tiller(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiller_client", *arguments]
    return subprocess.run(
        command, env=daemon.variables, capture_output=True, text=True, check=False
    )


def files(workspace: Path) -> dict[str, str]:
    return {
        path.relative_to(workspace).as_posix(): path.read_text()
        for path in workspace.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


async def turn_ids(frontend: Frontend, session_id: str) -> list[str]:
    log = await frontend.log(session_id)
    return [event.turn_id or "" for event in log if isinstance(event.body, TurnStarted)]


async def patches(frontend: Frontend, session_id: str) -> list[Patch]:
    result = await frontend.must(SessionGet(session_id))
    assert isinstance(result, SessionResult)
    return [item for item in result.snapshot.items if isinstance(item, Patch)]


@pytest.mark.promise("B55")
async def test_revert_to_a_step_with_later_edits_and_back(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """A revert restores only what the turn changed, and names conflicts; `unrevert` undoes it."""
    (workspace / "mine").write_text("mine\n")
    steps = (
        calls(write("one", "1\n"), bash("echo more >> greeting.txt")),
        calls(bash("rm mine; echo 2 > two; mkdir d; echo 3 > d/three"), read("one")),
        always("done"),
    )
    session_id = await frontend.session(workspace, *steps, approve="always")
    before = files(workspace)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (turn_id,) = await turn_ids(frontend, session_id)
    first, second = await patches(frontend, session_id)
    assert first.files == ("greeting.txt", "one")
    assert [c.kind for c in second.changes] == ["added", "removed", "added"]
    (workspace / "two").write_text("edited by the user\n")
    (workspace / "beside").write_text("of the user\n")
    changed = files(workspace)

    back = await trio.to_thread.run_sync(
        tiller, daemon, "revert", "--step", "2", session_id, turn_id
    )
    assert back.returncode == 0
    first_line, *rest = back.stdout.splitlines()
    assert first_line.startswith(f"went back to the point before step 2 of turn {turn_id} “")
    assert rest == ["removed: d/three", "put back: mine"]
    assert "two is left as it is, because something else has changed it" in back.stderr
    assert files(workspace) == {
        "greeting.txt": "hello\nmore\n",
        "one": "1\n",
        "mine": "mine\n",
        "two": "edited by the user\n",
        "beside": "of the user\n",
    }
    assert not (workspace / "d").exists()
    warning = await frontend.until_body(session_id, WarningRaised)
    assert isinstance(warning.body, WarningRaised)
    assert warning.body.code == "files_kept"

    again = await trio.to_thread.run_sync(tiller, daemon, "revert", session_id, turn_id)
    assert again.returncode == 0
    assert files(workspace) == before | {
        "two": "edited by the user\n",
        "beside": "of the user\n",
    }
    for _ in range(2):
        undone = await trio.to_thread.run_sync(tiller, daemon, "unrevert", session_id)
        assert undone.returncode == 0, undone.stderr
    assert files(workspace) == changed


async def test_a_step_that_only_reads_takes_no_snapshot(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    session_id = await frontend.session(
        workspace, calls(read("greeting.txt"), bash("cat greeting.txt")), always("done")
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    assert await patches(frontend, session_id) == []
    held = list((daemon.places.state / "snapshots").glob(f"*/refs/tiller/{session_id}"))
    assert held == []


@pytest.mark.promise("B55")
async def test_an_interrupted_step_is_reverted_as_well(frontend: Frontend, workspace: Path) -> None:
    gate = Gate(workspace, "gate")
    command = f"echo half > half; {gate.command}"
    session_id = await frontend.session(
        workspace, calls(bash(command)), always("done"), approve="always"
    )
    await frontend.say(session_id)
    await gate.reached()
    await frontend.must(Interrupt(session_id))
    await frontend.until_body(session_id, TurnEnded)
    (turn_id,) = await turn_ids(frontend, session_id)
    result = await frontend.must(Revert(session_id, turn_id))
    assert isinstance(result, RevertResult)
    assert "half" in result.files
    assert not (workspace / "half").exists()
    await frontend.must(Unrevert(session_id))
    assert (workspace / "half").read_text() == "half\n"


@pytest.mark.promise("B55")
async def test_files_of_a_turn_go_back_after_a_restart_of_the_daemon(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(
        workspace, calls(write("one", "1\n")), always("done"), approve="always"
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (turn_id,) = await turn_ids(frontend, session_id)
    await frontend.disconnect()
    daemon.restart()
    await frontend.reconnect()
    await frontend.must(Revert(session_id, turn_id))
    assert not (workspace / "one").exists()
    await frontend.must(Unrevert(session_id))
    assert (workspace / "one").read_text() == "1\n"
    store = next((daemon.places.state / "snapshots").glob("*.git"))
    await frontend.must(SessionDelete(session_id))
    frontend.forget(session_id)
    with trio.fail_after(10):
        while store.exists():  # noqa: ASYNC110 - nothing reports it
            await trio.sleep(0.01)
    await frontend.close()


async def test_what_a_killed_step_did_to_files_is_said_to_be_unknown(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    gate = Gate(workspace, "gate")
    session_id = await frontend.session(
        workspace, calls(bash(f"echo x > half; {gate.command}")), always("done"), approve="always"
    )
    await frontend.say(session_id)
    await gate.reached()
    (turn_id,) = await turn_ids(frontend, session_id)
    await frontend.disconnect()
    daemon.restart()
    await frontend.reconnect()
    (patch,) = await patches(frontend, session_id)
    assert patch == Patch(patch.id, ())
    result = await frontend.must(Revert(session_id, turn_id))
    assert result == RevertResult(partial=True)
    assert (workspace / "half").exists()
    await frontend.close()


@pytest.mark.parametrize("broken", ["off", "no git"])
async def test_without_snapshots_turns_go_on_and_a_revert_says_that_files_stay(
    new_daemon: Callable[..., Daemon],
    workspace: Path,
    nursery: trio.Nursery,
    broken: str,
) -> None:
    daemon = new_daemon("snapshots = false\n" + CONFIG if broken == "off" else CONFIG)
    (daemon.home / ".local").mkdir()
    daemon.start(**({} if broken == "off" else {"PATH": str(daemon.home / ".local")}))
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(
        workspace,
        calls(write("one", "1\n")),
        calls(write("two", "2\n")),
        always("done"),
        approve="always",
    )
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    (turn_id,) = await turn_ids(frontend, session_id)
    log = await frontend.log(session_id)
    warnings = [event.body.code for event in log if isinstance(event.body, WarningRaised)]
    assert warnings == ([] if broken == "off" else ["snapshot_failed"])
    result = await frontend.must(Revert(session_id, turn_id))
    kept = ("one", "two")
    assert result == RevertResult(conflicts=kept, partial=True, without_snapshot=kept)
    assert (workspace / "one").exists()
    await frontend.close()


async def test_the_diff_of_a_turn_is_that_of_its_steps_together(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    steps = (
        calls(bash("echo 1 > one; echo 1 > gone")),
        calls(bash("echo 2 > one; rm gone; printf '\\0' > binary")),
        text("done"),
        calls(bash("echo 3 > three")),
        always("done"),
    )
    session_id = await frontend.session(workspace, *steps, approve="always")
    for number in (1, 2):
        await frontend.say(session_id)
        await frontend.turn_ended(session_id, number)
    first, _ = await turn_ids(frontend, session_id)
    result = await frontend.must(SessionDiff(session_id, first))
    assert isinstance(result, SessionDiffResult)
    told = [(c.path, c.kind, c.added_lines, c.removed_lines) for c in result.files]
    assert told == [("binary", "added", None, None), ("one", "added", 1, 0)]
    assert "+2" in result.diff
    of_all = await trio.to_thread.run_sync(tiller, daemon, "diff", "--json", session_id)
    whole = msgspec.json.decode(of_all.stdout, type=SessionDiffResult)
    assert [c.path for c in whole.files] == ["binary", "one", "three"]
    of_step = await trio.to_thread.run_sync(
        tiller, daemon, "diff", "--step", "1", session_id, first
    )
    of_files = [line for line in of_step.stdout.splitlines() if line.startswith("diff --git")]
    assert of_files == ["diff --git a/gone b/gone", "diff --git a/one b/one"]


async def test_a_diff_whose_list_of_files_is_too_long_is_cut_and_says_so(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    deep = "/".join("d" * 200 for _ in range(4))
    change = f"mkdir -p {deep}; for i in $(seq 400); do echo > {deep}/$i; done"
    session_id = await frontend.session(
        workspace, calls(bash(change)), always("done"), approve="always"
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    result = await frontend.must(SessionDiff(session_id))
    assert isinstance(result, SessionDiffResult)
    assert result.cut
    sizes = [len(file.path) for file in result.files]
    assert PATHS_CHARS_MAX - 2 * sizes[0] < sum(sizes) <= PATHS_CHARS_MAX
    shown = await trio.to_thread.run_sync(tiller, daemon, "diff", session_id)
    assert "the diff is too long; the files at its end are missing" in shown.stderr


async def test_the_changes_of_a_sub_agent_go_back_with_the_turn_it_worked_for(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    agents = daemon.places.config / "agents"
    agents.mkdir(exist_ok=True)
    model = daemon.script(calls(bash("echo 1 > one")), always("did it"))
    head = f"---\ndescription: helps\nmodel: {model}\n---\nYou help.\n"
    (agents / "writer.md").write_text(head)
    task = CallPart("task", arguments={"prompt": "go", "agent": "writer"})
    session_id = await frontend.session(workspace, calls(task), always("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    assert [patch.files for patch in await patches(frontend, session_id)] == [("one",)]
    (turn_id,) = await turn_ids(frontend, session_id)
    await frontend.must(Revert(session_id, turn_id))
    assert not (workspace / "one").exists()


@pytest.mark.promise("B55")
async def test_the_users_own_command_is_reverted_like_a_turn(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, always("done"))
    started = await frontend.must(Shell(session_id, "echo 1 > one"))
    assert isinstance(started, Started)
    await frontend.turn_ended(session_id)
    result = await frontend.must(Revert(session_id, started.turn_id))
    assert result == RevertResult(("one",), removed=("one",))
    assert not (workspace / "one").exists()


async def test_what_no_snapshot_has_is_named_when_it_stays(
    frontend: Frontend, workspace: Path, tmp_path: Path, daemon: Daemon
) -> None:
    (workspace / ".gitignore").write_text("ignored\n")
    outside = str(tmp_path / "outside")
    steps = (calls(write("ignored", "1"), write(".env", "1"), write(outside, "1")), always("done"))
    session_id = await frontend.session(workspace, *steps)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (turn_id,) = await turn_ids(frontend, session_id)
    result = await frontend.must(Revert(session_id, turn_id))
    assert isinstance(result, RevertResult)
    assert result.files == ()
    assert set(result.conflicts) == {"ignored", ".env", outside}
    assert result.without_snapshot == result.conflicts
    warning = await frontend.until_body(session_id, WarningRaised)
    assert isinstance(warning.body, WarningRaised)
    assert (
        "No usable snapshot contains these files, so they stay as they are: "
        in warning.body.message
    )
    assert "Something else" not in warning.body.message

    await frontend.must(Unrevert(session_id))
    said = await trio.to_thread.run_sync(tiller, daemon, "revert", session_id, turn_id)
    assert f"{outside} is left as it is, because there is no snapshot of it" in said.stderr
    assert "something else has changed it" not in said.stderr


async def test_a_session_whose_workspace_is_gone_can_not_be_reverted(
    frontend: Frontend, workspace: Path
) -> None:
    steps = (calls(write("one", "1\n")), always("done"))
    session_id = await frontend.session(workspace, *steps, approve="always")
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (turn_id,) = await turn_ids(frontend, session_id)
    there = await trio.Path(workspace).rename(workspace.with_name("moved"))
    log = await frontend.log(session_id)

    refused = await frontend.refused(Revert(session_id, turn_id))
    assert refused.message.startswith(f"The workspace {workspace} does not exist. ")
    assert await frontend.log(session_id) == log
    assert await (there / "one").exists()

    await there.rename(workspace)
    assert await frontend.must(Revert(session_id, turn_id)) == RevertResult(
        ("one",), removed=("one",)
    )


async def test_a_diff_says_of_a_protected_file_that_it_changed_and_no_more(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """Reading `conf/*` asks → lines of its files are in no diff, patch or log; other lines are."""
    (workspace / "conf").mkdir()
    (workspace / "conf" / "a.txt").write_text("hidden before\n")
    (workspace / "secret.key").write_text("hidden key\n")
    change = "sed -i s/before/after/ conf/a.txt; echo new > shown.txt; echo x >> secret.key"
    session_id = await frontend.session(
        workspace,
        calls(bash(change)),
        always("done"),
        approve="always",
        permissions=(Rule("read", "conf/*", "ask"),),
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (patch,) = await patches(frontend, session_id)
    assert patch.files == ("conf/a.txt", "shown.txt")
    result = await frontend.must(SessionDiff(session_id))
    assert isinstance(result, SessionDiffResult)
    assert result.diff.startswith(
        "The content of conf/a.txt changes. It is not shown, because reading it needs approval.\n"
    )
    assert [one.path for one in result.files] == ["conf/a.txt", "shown.txt"]
    shown = await trio.to_thread.run_sync(tiller, daemon, "diff", session_id)
    assert "The content of conf/a.txt changes. It is not shown" in shown.stdout
    for said in (result.diff, shown.stdout, repr(await frontend.log(session_id))):
        assert "hidden" not in said
    assert "+new" in result.diff
    assert "+new" in shown.stdout


async def test_git_applies_what_diff_writes_to_a_pipe(
    daemon: Daemon, frontend: Frontend, workspace: Path, tmp_path: Path
) -> None:
    fresh, patch = tmp_path / "fresh", tmp_path / "patch"
    shutil.copytree(workspace, fresh)
    lines = (
        "printf 'a\\0\\377b' >binary; echo more >>greeting.txt",
        "mkdir 'a b'; printf 'x\\r\\n\\033[m' >'a b/ü'",
    )
    steps = (calls(bash("; ".join(lines))), text("done"))
    session_id = await frontend.session(workspace, *steps, approve="always")
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)

    command = [sys.executable, "-m", "tiller_client", "diff", session_id]
    with patch.open("wb") as stdout:
        await trio.run_process(command, stdout=stdout, env=daemon.variables)
    await trio.run_process(["git", "apply", str(patch)], cwd=fresh)
    for path in ("binary", "greeting.txt", "a b/ü"):
        assert (fresh / path).read_bytes() == (workspace / path).read_bytes()


async def test_a_name_that_would_be_ambiguous_in_one_line_is_quoted(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    steps = (calls(bash(r"""echo 1 > ' lead'; echo 1 > "$(printf 'a\nb')" """)), always("done"))
    session_id = await frontend.session(workspace, *steps, approve="always")
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (turn_id,) = await turn_ids(frontend, session_id)
    shown = await trio.to_thread.run_sync(tiller, daemon, "show", session_id)
    assert r'± " lead", "a\nb"' in shown.stdout
    back = await trio.to_thread.run_sync(tiller, daemon, "revert", session_id, turn_id)
    assert back.stdout.splitlines()[1:] == ['removed: " lead"', r'removed: "a\nb"']
