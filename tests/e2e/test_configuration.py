"""After the configuration file changes, the running daemon uses it from the next turn on."""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from e2e.gates import Gate
from e2e.test_mcp import server, tiny
from e2e.words import always, bash, calls, text
from support import tiny_mcp
from support.daemon import CONFIG, Daemon, gone
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.answers import CatalogResult
from tiller_protocol.events import TurnStarted, WarningRaised
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import Catalog

TINY = server("tiny", tiny_mcp.__file__)
OTHER = server("other", tiny_mcp.__file__)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[Daemon]:
    daemon = Daemon(tmp_path_factory.mktemp("d"))
    daemon.start(LATER_KEY="sk-of-a-later-provider")
    yield daemon
    daemon.close()


@pytest.fixture
def daemon(shared: Daemon) -> Daemon:
    shared.configure(CONFIG + TINY + OTHER)
    return shared


async def pid_of_server(frontend: Frontend, workspace: Path, name: str = "tiny") -> str:
    """Return the pid of the MCP server `name`, in a new session."""
    call = CallPart(f"mcp__{name}__pid", arguments={})
    session_id = await frontend.session(workspace, calls(call), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (called,) = frontend.completed_calls(session_id)
    return called.output


def warnings(frontend: Frontend, session_id: str) -> list[str]:
    bodies = [event.body for event in frontend.events(session_id)]
    return [b.message for b in bodies if isinstance(b, WarningRaised) and b.code == "configuration"]


def limits(frontend: Frontend, session_id: str) -> list[int]:
    """Return the step limit of each turn."""
    bodies = [event.body for event in frontend.events(session_id)]
    return [body.context.max_steps for body in bodies if isinstance(body, TurnStarted)]


async def test_the_next_turn_of_every_session_goes_by_the_new_file(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, always("hello"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    daemon.configure("max_steps = 7\n" + CONFIG)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id, 2)
    assert limits(frontend, session_id) == [200, 7]


async def test_a_server_stays_as_it_is_unless_its_own_settings_change(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    tiny_before = await pid_of_server(frontend, workspace)
    other_before = await pid_of_server(frontend, workspace, "other")
    daemon.configure(CONFIG + TINY + OTHER + "start_timeout_s = 9\n")
    assert await pid_of_server(frontend, workspace) == tiny_before
    assert await pid_of_server(frontend, workspace, "other") != other_before
    assert gone(int(other_before), timeout_s=10)
    daemon.configure(CONFIG + OTHER + "start_timeout_s = 9\n")
    catalog = await frontend.must(Catalog())
    assert isinstance(catalog, CatalogResult)
    assert [one.name for one in catalog.servers] == ["other"]
    assert not [tool for tool in catalog.tools if tool.server == "tiny"]


async def test_a_turn_that_runs_is_told_that_its_server_was_taken_out(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await frontend.session(
        workspace, calls(bash(gate.command)), calls(tiny("pid")), text("done")
    )
    await frontend.say(session_id)
    await gate.reached()
    daemon.configure(CONFIG)
    assert isinstance(await frontend.must(Catalog()), CatalogResult)
    gate.open()
    await frontend.turn_ended(session_id)
    _, called = frontend.completed_calls(session_id)
    assert called.state == "error"
    assert "The configuration has changed since the turn began" in called.output


async def test_a_file_that_can_not_be_read_is_told_of_and_changes_nothing(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, always("hello"))
    daemon.configure("max_step = 7\n" + CONFIG)
    for number in (1, 2):
        await frontend.say(session_id)
        assert (await frontend.turn_ended(session_id, number)).outcome == "completed"
    (said,) = warnings(frontend, session_id)
    assert "max_step" in said
    assert "max_steps" in said
    assert "the previous configuration stays in effect" in said
    daemon.configure("max_steps = 7\n" + CONFIG)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id, 3)
    assert len(warnings(frontend, session_id)) == 1
    assert limits(frontend, session_id) == [200, 200, 7]


async def test_a_fifo_in_place_of_the_file_is_told_of_and_not_waited_for(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, always("hello"))
    os.mkfifo(daemon.places.config / "fifo")
    (daemon.places.config / "fifo").rename(daemon.places.config / "config.toml")
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    (said,) = warnings(frontend, session_id)
    assert "config.toml is not a regular file" in said


@pytest.mark.promise("G13")
async def test_the_variable_of_a_new_provider_is_kept_from_commands(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    daemon.configure(
        CONFIG + '[providers.later]\napi = "openai_chat"\nbase_url = "http://127.0.0.1:9/v1"\n'
        'api_key_env = "LATER_KEY"\n'
    )
    session_id = await frontend.session(workspace, calls(bash("env")), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (called,) = frontend.completed_calls(session_id)
    assert isinstance(called, ToolCall)
    assert "PATH=" in called.output
    assert "LATER_KEY" not in called.output


async def test_sighup_takes_over_a_change_at_once(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    pid = await pid_of_server(frontend, workspace)
    daemon.configure(CONFIG)
    assert daemon.process
    daemon.process.send_signal(signal.SIGHUP)
    assert gone(int(pid), timeout_s=10)
