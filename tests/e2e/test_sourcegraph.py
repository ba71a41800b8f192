"""`sourcegraph` over the wire: offered if configured, run after approval, its key kept secret."""

import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from e2e.words import always, bash, calls, calls_in, text
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from support.http_server import LocalServer, events, serving
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.ops import Answer

KEY = "sgp_key-of-mine-0123"
MATCHES = [{"type": "path", "repository": f"r/{KEY}", "path": "a.py"}]
STREAM = (
    f"event: matches\ndata: {json.dumps(MATCHES)}\n\n".encode(),
    b"event: done\ndata: {}\n\n",
)


@pytest.fixture
async def server() -> AsyncGenerator[LocalServer]:
    async with serving(events(*STREAM)) as server:
        yield server


@pytest.fixture
def daemon(new_daemon: Callable[..., Daemon]) -> Daemon:
    daemon = new_daemon()
    daemon.start(SEARCH_ACCESS=KEY)
    return daemon


async def test_it_is_offered_when_a_server_is_configured_and_asked_about(
    daemon: Daemon, frontend: Frontend, workspace: Path, server: LocalServer
) -> None:
    session_id = await frontend.session(workspace, always("hello"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    assert "sourcegraph" not in {tool.name for tool in frontend.requests(session_id)[0].tools}
    name = f"127.0.0.1:{server.port}"
    daemon.configure(
        CONFIG + f'[sourcegraph]\nendpoint = "http://{name}"\napi_key_env = "SEARCH_ACCESS"\n'
    )
    search = CallPart("sourcegraph", arguments={"query": "x"})
    session_id = await frontend.session(
        workspace, calls(search, bash("env")), text("done"), approve="ask"
    )
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    assert (request.permission, request.subjects) == ("fetch", (name,))
    await frontend.must(Answer(request.id, "once"))
    await frontend.turn_ended(session_id)
    found, variables = calls_in(frontend.requests(session_id)[1].items)
    assert found.output == "r/[secret] a.py"
    assert server.received[0].headers["authorization"] == f"token {KEY}"
    assert "SEARCH_ACCESS" not in variables.output
    assert KEY not in "".join(map(str, await frontend.log(session_id))) + daemon.said
