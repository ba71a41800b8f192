"""A changed configuration counts for the very next op, whichever it is, and so do its mistakes."""

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.gates import Gate
from e2e.test_mcp import server, tiny
from e2e.words import always, bash, calls, text
from support import tiny_mcp
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from tiller_protocol.answers import CatalogResult, Started
from tiller_protocol.events import TurnStarted
from tiller_protocol.ops import Catalog, SessionConfigure, SessionCreate, UserInput
from tiller_protocol.settings import Settings, TurnOverrides

PROVIDER = '[providers.{name}]\napi = "scripted"\nscripts = "../scripts"\n'
AGENT = '[agents.{name}]\ndescription = "New."\nprompt = "You are {name}."\nmax_steps = 3\n'


@pytest.fixture
def daemon(daemon: Daemon) -> Daemon:
    daemon.configure(CONFIG)
    daemon.play("hello", always("hello"))
    return daemon


def contexts(frontend: Frontend, session_id: str) -> list[tuple[str, str]]:
    """The agent and the model of each turn."""
    bodies = [event.body for event in frontend.events(session_id)]
    shown = [body.context for body in bodies if isinstance(body, TurnStarted)]
    return [(one.agent, one.model) for one in shown]


def tiller(daemon: Daemon, workspace: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiller_client", *words]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=daemon.variables, cwd=workspace
    )


async def test_a_new_model_and_a_new_agent_can_be_chosen_at_once(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    daemon.configure(CONFIG + PROVIDER.format(name="first") + AGENT.format(name="critic"))
    settings = Settings(model="first/hello", agent="critic", approve="always")
    created = await frontend.must(SessionCreate(str(workspace), settings=settings))
    session_id = getattr(created, "session_id", "")
    frontend.follow(session_id)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    daemon.configure(CONFIG + PROVIDER.format(name="second") + AGENT.format(name="poet"))
    chosen = Settings(model="second/hello", agent="poet")
    await frontend.must(SessionConfigure(session_id, chosen))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id, 2)
    daemon.configure(CONFIG + PROVIDER.format(name="third") + AGENT.format(name="judge"))
    overrides = TurnOverrides(model="third/hello", agent="judge")
    await frontend.say(session_id, overrides=overrides)
    await frontend.turn_ended(session_id, 3)
    assert contexts(frontend, session_id) == [
        ("critic", "first/hello"),
        ("poet", "second/hello"),
        ("judge", "third/hello"),
    ]


async def test_what_was_taken_out_is_unknown_at_once(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    daemon.configure(CONFIG + PROVIDER.format(name="first") + AGENT.format(name="critic"))
    session_id = await frontend.session(workspace, model="first/hello", agent="critic")
    daemon.configure(CONFIG)
    for op in (
        SessionCreate(str(workspace), agent="critic"),
        SessionConfigure(session_id, Settings(agent="critic")),
        UserInput(session_id, "go", overrides=TurnOverrides(model="scripted/hello")),
    ):
        refused = await frontend.refused(op)
        assert refused.code == "invalid_settings"
        assert "There is no agent 'critic'" in refused.message
    refused = await frontend.refused(SessionCreate(str(workspace), model="first/hello"))
    assert "There is no model 'first/hello'" in refused.message


async def test_a_mistake_in_the_file_is_named_where_something_is_unknown_for_it(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    """File and line, in the rejection; a running turn goes on, and the repair counts at once."""
    gate = Gate(workspace)
    running = await frontend.session(workspace, calls(bash(gate.command)), text("done"))
    await frontend.say(running)
    await gate.reached()
    broken = AGENT.format(name="critic").replace("max_steps", "max_stepz")
    daemon.configure(broken + CONFIG)
    refused = await frontend.refused(SessionCreate(str(workspace), agent="critic"))
    assert "There is no agent 'critic'" in refused.message
    assert f"{daemon.places.config / 'config.toml'}, line 4" in refused.message
    assert "max_stepz" in refused.message
    gate.open()
    assert (await frontend.turn_ended(running)).outcome == "completed"
    daemon.configure(CONFIG + AGENT.format(name="critic"))
    assert await frontend.must(SessionCreate(str(workspace), agent="critic"))


async def test_a_new_mcp_server_is_started_by_the_op_that_starts_servers(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    daemon.configure(CONFIG + server("tiny", tiny_mcp.__file__))
    catalog = await frontend.must(Catalog(start_servers=True))
    assert isinstance(catalog, CatalogResult)
    assert [(one.name, one.state) for one in catalog.servers] == [("tiny", "up")]
    session_id = await frontend.session(workspace, calls(tiny("pid")), text("done"))
    assert isinstance(await frontend.say(session_id), Started)
    await frontend.turn_ended(session_id)


async def test_the_command_line_takes_new_models_and_agents(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    daemon.configure(CONFIG + PROVIDER.format(name="first"))
    made = tiller(daemon, workspace, "new", "-m", "first/hello")
    assert made.returncode == 0, made.stderr
    daemon.configure(CONFIG + PROVIDER.format(name="second") + AGENT.format(name="critic"))
    sent = tiller(daemon, workspace, "send", "-m", "second/hello", "--agent", "critic", "last", "x")
    assert sent.returncode == 0, sent.stderr
    daemon.configure(CONFIG + AGENT.format(name="poet"))
    ran = tiller(daemon, workspace, "exec", "-m", "scripted/hello", "--agent", "poet", "say hello")
    assert (ran.returncode, ran.stdout.strip()) == (0, "hello"), ran.stderr
    daemon.configure("modell = 1\n" + CONFIG)
    failed = tiller(daemon, workspace, "exec", "--agent", "nobody", "x")
    assert failed.returncode == 1
    assert "config.toml, line 1" in failed.stderr
    for verb in ("agents", "models"):
        listed = tiller(daemon, workspace, verb)
        assert listed.returncode == 0
        assert "config.toml, line 1" in listed.stderr, "what is listed is not what the file says"
    daemon.configure(CONFIG)
    assert tiller(daemon, workspace, "agents").stderr == ""
