"""`sourcegraph`: what its stream becomes, what goes wrong, that its key goes nowhere else.

The server is the test's own: it speaks the stream as https://sourcegraph.com/docs/api/stream_api
and the types of Sourcegraph's own client say it. No server of theirs was asked.
"""

import json
import re
from contextlib import suppress
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from support.http_server import events, hanging, raw, serving, status
from tiller_daemon.config import Configuration, Sourcegraph
from tiller_daemon.search_tools import SearchTools
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.web import keyed_server
from tiller_daemon.tools.web.sourcegraph_stream import LINES_SHOWN_MAX, read_stream

KEY = "sgp_0123456789abcdef"
AT_ONCE_S = 1.0


def event(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


CONTENT = {
    "type": "content",
    "path": "src/a.py",
    "repository": "github.com/a/b",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "branches": [""],
    "pathMatches": None,
    "lineMatches": [
        {"line": "def größe():", "lineNumber": 11, "offsetAndLengths": [[4, 5]]},
        {"line": "x" * 1000, "lineNumber": 12, "offsetAndLengths": [[0, 1]]},
    ],
    "hunks": [],
}
CHUNKS = {
    "type": "content",
    "path": "b.go",
    "repository": "github.com/c/d",
    "chunkMatches": [
        {
            "content": "one\ntwo",
            "contentStart": {"offset": 90, "line": 4, "column": 0},
            "ranges": [],
            "contentTruncated": False,
        }
    ],
}
OTHERS = [
    {"type": "path", "path": "docs/x.md", "repository": "github.com/a/b"},
    {"type": "repo", "repository": "github.com/a/b", "description": "All of it", "repoStars": 3},
    {
        "type": "symbol",
        "path": "s.py",
        "repository": "github.com/a/b",
        "symbols": [{"name": "f", "containerName": "C", "kind": "METHOD", "line": 7, "url": "/"}],
    },
    {
        "type": "commit",
        "repository": "github.com/a/b",
        "oid": "fedcba9876543210",
        "message": "Mend it\n\nAt last.",
        "authorName": "Ann",
        "authorDate": "2026-01-02T03:04:05Z",
        "content": "```diff\n-x\n+y",
        "ranges": [],
    },
    {"type": "something new", "repository": "github.com/a/b"},
]
PROGRESS = {"done": True, "matchCount": 2, "durationMs": 20, "skipped": []}
WHOLE = (
    event("filters", [{"value": "lang:python"}]),
    event("matches", [CONTENT, CHUNKS]),
    event("matches", OTHERS),
    event("progress", PROGRESS),
    event("done", {}),
)


class Asking:
    """A bench with a search that is configured."""

    def __init__(self, bench, endpoint: str, **key: Any) -> None:
        self.environment = replace(bench._environment(()), secrets=("of-a-provider",))
        search = SearchTools({"SRC_ACCESS_TOKEN": KEY})
        search.configure(Configuration(sourcegraph=Sourcegraph(endpoint, **key)), ())
        (self.tool,) = search.tools().values()
        self.search = search

    def arguments(self, query: str = "größe lang:python"):
        assert isinstance(self.tool.arguments, type)
        return self.tool.arguments(query=query)

    async def ask(self, query: str = "größe lang:python") -> str:
        return (await self.tool.run(self.arguments(query), self.environment)).output

    async def refused(self) -> str:
        with pytest.raises(ToolFailure) as failure:
            await self.ask()
        assert KEY not in str(failure.value)
        return str(failure.value)


@pytest.fixture
def asking(bench):
    def make(server, **key: Any) -> Asking:
        key = key or {"api_key_env": "SRC_ACCESS_TOKEN"}
        return Asking(bench, f"http://127.0.0.1:{server.port}/base/", **key)

    return make


async def test_matches_of_every_kind_are_shown_by_repository_and_path(asking):
    async with serving(events(*WHOLE)) as server:
        found = await asking(server).ask()
    assert found.split("\n") == [
        "github.com/a/b@0123456 src/a.py",
        "    12\tdef größe():",
        f"    13\t{'x' * 393} [... cut]",
        "github.com/c/d b.go",
        "     5\tone",
        "     6\ttwo",
        "github.com/a/b docs/x.md",
        "github.com/a/b  All of it",
        "github.com/a/b s.py",
        "     7\tmethod f in C",
        "github.com/a/b@fedcba9 Mend it (Ann, 2026-01-02T03:04:05Z)",
        "\t```diff",
        "\t-x",
        "\t+y",
    ]
    (request,) = server.received
    assert request.path == (
        "/base/.api/search/stream?q=gr%C3%B6%C3%9Fe+lang%3Apython&v=V3&display=100"
    )
    assert request.headers["authorization"] == f"token {KEY}"
    assert request.headers["accept"] == "text/event-stream"


async def test_a_server_that_wants_no_key_is_sent_none(bench):
    async with serving(events(*WHOLE)) as server:
        await Asking(bench, f"http://127.0.0.1:{server.port}").ask()
    assert "authorization" not in server.received[0].headers


async def test_its_need_is_that_of_a_page_of_this_server(asking):
    async with serving(events(*WHOLE)) as server:
        made = asking(server)
        (need,) = made.tool.requirements(made.arguments("secret plans"), made.environment.workspace)
    name = f"127.0.0.1:{server.port}"
    assert (need.permission, need.subjects, need.always) == (
        "fetch",
        (name,),
        (name,),
    )
    assert need.detail == "secret plans"
    assert made.tool.effect == "read"
    assert not made.tool.repeatable(made.arguments())


async def test_what_was_left_out_and_what_to_do_instead_is_said(asking):
    skipped = [{"reason": "shard-timeout", "title": "3 timed out", "message": "Try `timeout:`"}]
    alert = {
        "title": "Too much",
        "description": "Be precise.",
        "proposedQueries": [{"description": "x", "query": "größe file:x"}],
    }
    stream = (
        event("matches", [CONTENT]),
        event("progress", {"done": True, "matchCount": 4711, "skipped": skipped}),
        event("alert", alert),
        event("done", {}),
    )
    async with serving(events(*stream)) as server:
        found = (await asking(server).ask()).split("\n")
    assert found[3:] == [
        "(100 of 4711 matches. Narrow the query.)",
        "(Not searched: 3 timed out. Try `timeout:`)",
        "(Too much. Be precise. Perhaps: größe file:x)",
    ]


async def test_nothing_is_an_answer_and_an_error_is_none(asking):
    async with serving(events(event("progress", PROGRESS), event("done", {}))) as server:
        assert await asking(server).ask() == "Nothing matches."
    problem = event("error", {"name": "Error", "message": f"bad query near {KEY}"})
    async with serving(events(problem, event("done", {}))) as server:
        assert await asking(server).refused() == "The search failed: bad query near [secret]"
    async with serving(events(event("matches", [CONTENT]), problem)) as server:
        assert "(The search broke off: bad query near [secret])" in await asking(server).ask()


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (status(401, f"Invalid access token {KEY}".encode()), "does not accept the key. The user"),
        (status(403, b"no"), "Check the variable SRC_ACCESS_TOKEN"),
        (
            status(429, b"slow down", Retry_After="60"),
            "accepts no more searches for now.*slow down",
        ),
        (status(500, b"broken"), "answers 500. The server says: broken"),
        (status(404), "answers 404"),
        (status(200, b"<html>sign in", Content_Type="text/html"), "text/html instead of results"),
        (status(302, Location="https://elsewhere.example/x"), "redirects to elsewhere.example"),
        (events(b"event: matches\ndata: [{]\n\n"), "can't be decoded"),
        (events(b'event: matches\ndata: {"type": 1}\n\n'), "can't be decoded"),
        (events(b"event: progress\ndata: " + b"[" * 9999 + b"\n\n"), "can't be decoded"),
        (raw(b"no HTTP at all\r\n\r\n"), "can't be fetched"),
        (raw(b""), "can't be fetched"),
    ],
)
async def test_what_goes_wrong_is_said_without_the_key(asking, answer, problem):
    async with serving(answer) as server:
        found = await asking(server).refused()
    assert len(server.received) <= 1
    assert re.search(problem, found), found


async def test_a_key_that_is_not_accepted_is_got_anew_once(asking, tmp_path):
    kept = tmp_path / "keys"
    kept.write_text("old-key-of-mine\nnew-key-of-mine\n")
    take = f"head -1 {kept}; sed -i 1d {kept}"
    async with serving(status(401), events(*WHOLE)) as server:
        made = asking(server, api_key_command=("sh", "-c", take))
        assert "src/a.py" in await made.ask()
    sent = [request.headers["authorization"] for request in server.received]
    assert sent == ["token old-key-of-mine", "token new-key-of-mine"]
    assert made.search.secrets() == ("old-key-of-mine", "new-key-of-mine")


async def test_a_key_that_is_not_there_is_said(asking):
    async with serving(events(*WHOLE)) as server:
        problem = await asking(server, api_key_env="NOT_SET").refused()
    assert "expected in the variable NOT_SET" in problem
    assert not server.received


@pytest.mark.promise("G13")
async def test_a_query_that_holds_a_key_is_not_sent(asking):
    async with serving(events(*WHOLE)) as server:
        with pytest.raises(ToolFailure, match="contains a key"):
            await asking(server).ask("find of-a-provider")
    assert not server.received


async def test_what_was_found_within_the_time_is_shown(asking, monkeypatch):
    monkeypatch.setattr(keyed_server, "SEARCH_S_MAX", 0.3)
    cut = event("matches", [CHUNKS])[:-20]
    async with serving(hanging(event("matches", [CONTENT]), cut)) as server:
        found = await asking(server).ask()
    assert found.startswith("github.com/a/b@0123456 src/a.py\n")
    assert "c/d" not in found
    assert found.endswith("(The search was cut off; there may be more. Narrow the query.)")


async def test_an_interrupt_ends_a_search_at_once(asking):
    async with serving(hanging(event("matches", [CONTENT]))) as server:
        made = asking(server)
        began = trio.current_time()
        with trio.move_on_after(0.3) as scope:
            await made.ask()
        assert scope.cancelled_caught
        assert trio.current_time() - began < AT_ONCE_S
        with trio.fail_after(AT_ONCE_S):
            await server.client_closed.wait()


def test_a_flood_of_lines_is_bounded():
    lines = [{"line": "x", "lineNumber": number} for number in range(10_000)]
    found = read_stream(event("matches", [{**CONTENT, "lineMatches": lines}]), whole=False)
    assert found.count("\n") <= LINES_SHOWN_MAX


@given(data=st.binary(max_size=200), place=st.integers(0, 2000))
def test_a_stream_that_is_cut_or_damaged_is_an_answer_or_a_failure(data, place):
    whole = b"".join(WHOLE)
    for stream in (data, whole[:place], whole[:place] + data + whole[place:]):
        for is_whole in (True, False):
            with suppress(ToolFailure):
                assert isinstance(read_stream(stream, whole=is_whole), str)
