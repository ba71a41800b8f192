"""A session goes on in the directory to which its workspace has moved."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.words import always, bash, calls, hang, text, write
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_protocol.answers import Created, SessionListResult, SessionResult
from tiller_protocol.ops import (
    AnyOp,
    Revert,
    SessionConfigure,
    SessionFork,
    SessionGet,
    SessionList,
    Shell,
    UserInput,
)


def tiller(daemon: Daemon, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiller_client", *arguments]
    return subprocess.run(
        command, env=daemon.variables, cwd=cwd, capture_output=True, text=True, check=False
    )


async def place_of(frontend: Frontend, session_id: str) -> str:
    result = await frontend.must(SessionGet(session_id))
    assert isinstance(result, SessionResult)
    return result.snapshot.workspace


@pytest.mark.parametrize(
    "op",
    [
        lambda session_id, _: UserInput(session_id, "go on"),
        lambda session_id, _: Shell(session_id, "pwd"),
        lambda session_id, turn_id: Revert(session_id, turn_id),
    ],
    ids=["input", "shell", "revert"],
)
async def test_an_op_in_a_workspace_that_is_gone_says_how_to_name_its_new_place(
    frontend: Frontend, workspace: Path, op: Callable[[str, str], AnyOp]
) -> None:
    session_id = await frontend.session(workspace, text("one"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    turn_id = next(event.turn_id for event in await frontend.log(session_id) if event.turn_id)
    await trio.Path(workspace).rename(workspace.with_name("moved"))
    refused = await frontend.refused(op(session_id, turn_id))
    assert refused.message == (
        f"The workspace {workspace} does not exist. If it has moved, name its new place: "
        f"tiller set {session_id} workspace DIR"
    )


async def test_a_session_goes_on_in_the_new_place_even_after_a_restart(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    steps = (
        calls(write("made", "1\n")),
        text("one"),
        calls(bash("pwd > where")),
        text("two"),
        always("three"),
    )
    session_id = await frontend.session(workspace, *steps, approve="always")
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    moved = Path(await trio.Path(workspace).rename(workspace.with_name("moved")))

    done = tiller(daemon, "set", session_id, "workspace", "moved", cwd=moved.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"is now {moved}" in done.stdout
    for directory, found in ((moved, 1), (workspace, 0)):
        listed = await frontend.must(SessionList(str(directory)))
        assert isinstance(listed, SessionListResult)
        assert len(listed.sessions) == found
    await frontend.close()
    daemon.restart()

    frontend = await Frontend.connect(daemon, nursery)
    assert await place_of(frontend, session_id) == str(moved)
    assert str(moved) in tiller(daemon, "show", session_id, cwd=moved.parent).stdout
    frontend.follow(session_id)
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    assert (moved / "where").read_text() == f"{moved}\n"
    fork = await frontend.must(SessionFork(session_id, 3))
    assert isinstance(fork, Created)
    assert await place_of(frontend, fork.session_id) == str(moved), "not where it was at event 3"
    await frontend.close()


async def test_only_a_directory_that_can_be_used_is_a_new_place(
    frontend: Frontend, daemon: Daemon, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, hang())
    file = workspace / "file"
    file.touch()
    for place in ("relative", str(workspace / "missing"), str(file), ""):
        refused = await frontend.refused(SessionConfigure(session_id, workspace=place))
        assert refused.code == "invalid_settings"
        assert f"The workspace {place} " in refused.message
    for place, said in (("missing", "missing is not a directory"), ("", "name a directory")):
        done = tiller(daemon, "set", session_id, "workspace", place, cwd=workspace)
        assert done.returncode == 2
        assert said in done.stderr
    await frontend.say(session_id)
    refused = await frontend.refused(SessionConfigure(session_id, workspace=os.fspath(workspace)))
    assert refused.code == "busy"
    assert await place_of(frontend, session_id) == str(workspace)
