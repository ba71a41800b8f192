"""`web_search` over the wire: offered if configured, run after approval, its key kept secret."""

import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from e2e.words import always, bash, calls, calls_in, text
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from support.http_server import LocalServer, serving, status
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.ops import Answer

KEY = "BSA_key-of-mine-0123"
FOUND = {"web": {"results": [{"title": KEY, "url": "https://example.org/", "description": "It."}]}}
ANSWER = status(200, json.dumps(FOUND).encode(), Content_Type="application/json")


@pytest.fixture
async def server() -> AsyncGenerator[LocalServer]:
    async with serving(ANSWER) as server:
        yield server


@pytest.fixture
def daemon(new_daemon: Callable[..., Daemon]) -> Daemon:
    daemon = new_daemon()
    daemon.start(WEB_SEARCH_KEY=KEY)
    return daemon


async def test_it_is_offered_when_a_server_is_configured_and_asked_about(
    daemon: Daemon, frontend: Frontend, workspace: Path, server: LocalServer
) -> None:
    session_id = await frontend.session(workspace, always("hello"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    assert "web_search" not in {tool.name for tool in frontend.requests(session_id)[0].tools}
    name = f"127.0.0.1:{server.port}"
    table = f'[web_search]\nengine = "brave"\nendpoint = "http://{name}"\n'
    daemon.configure(f'{CONFIG}{table}api_key_env = "WEB_SEARCH_KEY"\n')
    search = CallPart("web_search", arguments={"query": "x"})
    session_id = await frontend.session(
        workspace, calls(search, bash("env")), text("done"), approve="ask"
    )
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    assert (request.permission, request.subjects) == ("fetch", (name,))
    await frontend.must(Answer(request.id, "once"))
    await frontend.turn_ended(session_id)
    found, variables = calls_in(frontend.requests(session_id)[1].items)
    assert found.output == "1. [secret]\n   https://example.org/\n   It."
    assert server.received[0].headers["x-subscription-token"] == KEY
    assert "WEB_SEARCH_KEY" not in variables.output
    assert KEY not in "".join(map(str, await frontend.log(session_id))) + daemon.said
