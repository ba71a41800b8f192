"""Search with the real daemon: a missing or damaged index, and the command line."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import trio

from e2e.words import always, calls, text, write
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_daemon.app import SEARCH_FILE
from tiller_protocol.ops import SessionDelete
from tiller_protocol.sessions import (
    InputHistory,
    InputHistoryResult,
    SessionSearch,
    SessionSearchResult,
)


async def found(frontend: Frontend, query: str) -> dict[str, list[str]]:
    """Return the kinds of the texts found, by session."""
    result = await frontend.must(SessionSearch(query))
    assert isinstance(result, SessionSearchResult)
    assert result.not_indexed == 0
    return {one.session.session_id: [text.kind for text in one.texts] for one in result.found}


async def test_sessions_are_found_across_kills_damage_and_the_loss_of_the_index(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    index = daemon.places.state / SEARCH_FILE
    frontend = await Frontend.connect(daemon, nursery)
    first = await frontend.session(
        workspace, calls(write("src/pelican.py", "print('secretcontent')\n")), text("All done.")
    )
    second = await frontend.session(workspace, always("A pelican is a bird."))
    await frontend.say(first, "add the heron")
    await frontend.say(second, "what is it?")
    await frontend.turn_ended(first)
    await frontend.turn_ended(second)
    assert await found(frontend, "pelican") == {first: ["files"], second: ["answer"]}
    assert await found(frontend, "secretcontent") == {}
    await frontend.say(second, "and what else?")
    await frontend.turn_ended(second, 2)
    everything = {first: ["files"], second: ["answer", "answer"]}
    assert await found(frontend, "pelican") == everything
    assert index.stat().st_mode & 0o777 == 0o600

    for damage in ("kill", "garbage", "gone"):
        await frontend.disconnect()
        daemon.kill9()
        match damage:
            case "garbage":
                index.write_bytes(b"garbage" * 10_000)
            case "gone":
                for file in index.parent.glob(f"{SEARCH_FILE}*"):
                    file.unlink()
            case _:
                pass
        daemon.start()
        await frontend.reconnect()
        assert await found(frontend, "pelican") == everything

    command = [sys.executable, "-m", "tiller_client", "search", "-C", str(workspace), "pel*"]
    here = await trio.run_process(
        command, env=daemon.variables, capture_stdout=True, stderr=subprocess.STDOUT
    )
    assert b"files: src/pelican.py" in here.stdout

    await frontend.must(SessionDelete(second))
    frontend.forget(second)
    assert await found(frontend, "pelican") == {first: ["files"]}
    inputs = await frontend.must(InputHistory(str(workspace)))
    assert isinstance(inputs, InputHistoryResult)
    assert [one.text for one in inputs.inputs] == ["add the heron"]
    await frontend.close()
    daemon.kill9()
    with sqlite3.connect(index) as connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
    connection.close()
