"""`web_search`: what the engines' answers become, what goes wrong, that its key goes nowhere else.

The server is the test's own. It speaks JSON as https://docs.searxng.org/dev/search_api.html and
https://api-dashboard.search.brave.com/api-reference/web/search/get describe it.
"""

import json
import re
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from support.http_server import hanging, serving, status
from tiller_daemon.config import Configuration, WebSearch
from tiller_daemon.search_tools import SearchTools
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.truncation import BYTES_MAX
from tiller_daemon.tools.web import keyed_server
from tiller_daemon.tools.web.search_results import RESULTS_MAX, read_brave, read_searxng

KEY = "BSA0123456789abcdef"

SEARXNG = {
    "query": "größe",
    "number_of_results": 0,
    "results": [
        {
            "url": "https://example.org/a",
            "title": "The <b>size</b> of\nthings",
            "content": "How big &amp; how small.",
            "publishedDate": "2026-01-02T03:04:05",
            "engine": "duckduckgo",
            "parsed_url": ["https", "example.org", "/a", "", "", ""],
            "template": "default.html",
            "engines": ["duckduckgo", "brave"],
            "positions": [1, 2],
            "score": 3.0,
            "category": "general",
        },
        {"url": "https://example.org/b", "title": "", "content": None, "publishedDate": None},
        {"title": "without an address"},
    ],
    "answers": ["42", {"answer": "forty-two", "url": "https://x/", "template": "answer/legacy"}],
    "corrections": [],
    "infoboxes": [],
    "suggestions": ["size"],
    "unresponsive_engines": [["google", "timeout"]],
}
BRAVE = {
    "type": "search",
    "query": {"original": "größe", "more_results_available": True},
    "mixed": {"type": "mixed", "main": [{"type": "web", "index": 0, "all": False}]},
    "web": {
        "type": "search",
        "results": [
            {
                "type": "search_result",
                "title": "The size of things",
                "url": "https://example.org/a",
                "description": "How big and how small.",
                "page_age": "2026-01-02T03:04:05",
                "age": "January 2, 2026",
                "language": "en",
                "family_friendly": True,
                "meta_url": {"scheme": "https", "netloc": "example.org"},
                "extra_snippets": ["More."],
            }
        ],
        "family_friendly": True,
    },
}
NO_KEY = {
    "type": "ErrorResponse",
    "error": {
        "id": "1",
        "status": 422,
        "code": "SUBSCRIPTION_TOKEN_INVALID",
        "detail": f"The provided subscription token {KEY} is invalid.",
    },
}
TOO_LONG = {
    "type": "ErrorResponse",
    "error": {"id": "2", "status": 422, "code": "VALIDATION", "detail": "400 characters at most"},
}


def answer(told: object, code: int = 200):
    return status(code, json.dumps(told).encode(), Content_Type="application/json; charset=utf-8")


class Asking:
    """A bench with a search that is configured."""

    def __init__(self, bench, engine: str, endpoint: str | None, **key: Any) -> None:
        self.environment = replace(bench._environment(()), secrets=("of-a-provider",))
        self.search = SearchTools({"SEARCH_KEY": KEY})
        settings = WebSearch(engine, endpoint, **key)  # type: ignore[arg-type]
        self.search.configure(Configuration(web_search=settings), ())
        (self.tool,) = self.search.tools().values()

    def arguments(self, query: str = "größe & co"):
        assert isinstance(self.tool.arguments, type)
        return self.tool.arguments(query=query)

    def need(self):
        (need,) = self.tool.requirements(self.arguments(), self.environment.workspace)
        return need

    async def ask(self, query: str = "größe & co") -> str:
        return (await self.tool.run(self.arguments(query), self.environment)).output

    async def refused(self, query: str = "größe & co") -> str:
        with pytest.raises(ToolFailure) as failure:
            await self.ask(query)
        assert KEY not in str(failure.value)
        return str(failure.value)


@pytest.fixture
def asking(bench):
    def make(engine: str, server, **key: Any) -> Asking:
        return Asking(bench, engine, f"http://127.0.0.1:{server.port}/base/", **key)

    return make


async def test_searxng_is_asked_for_json_and_its_results_are_listed(asking):
    async with serving(answer(SEARXNG)) as server:
        found = await asking("searxng", server).ask()
    assert found.split("\n") == [
        "Answer: 42",
        "Answer: forty-two",
        "1. The size of things",
        "   https://example.org/a",
        "   2026-01-02",
        "   How big & how small.",
        "2. https://example.org/b",
        "   https://example.org/b",
    ]
    (request,) = server.received
    url = urlsplit(request.path)
    assert url.path == "/base/search"
    assert parse_qs(url.query) == {"q": ["größe & co"], "format": ["json"]}
    assert "authorization" not in request.headers


async def test_brave_is_asked_with_the_key_and_its_results_are_listed(asking):
    async with serving(answer(BRAVE)) as server:
        found = await asking("brave", server, api_key_env="SEARCH_KEY").ask()
    assert found.split("\n") == [
        "1. The size of things",
        "   https://example.org/a",
        "   2026-01-02",
        "   How big and how small.",
    ]
    (request,) = server.received
    url = urlsplit(request.path)
    assert url.path == "/base/res/v1/web/search"
    assert parse_qs(url.query) == {
        "q": ["größe & co"],
        "count": ["10"],
        "result_filter": ["web"],
        "text_decorations": ["false"],
    }
    assert request.headers["x-subscription-token"] == KEY
    assert request.headers["accept"] == "application/json"


async def test_a_proxy_before_searxng_gets_its_key_as_a_bearer_token(asking):
    async with serving(answer(SEARXNG)) as server:
        await asking("searxng", server, api_key_env="SEARCH_KEY").ask()
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"


async def test_its_need_is_that_of_a_page_of_this_server(asking, bench):
    async with serving(answer(BRAVE)) as server:
        made = asking("searxng", server)
        need = made.need()
    name = f"127.0.0.1:{server.port}"
    assert (need.permission, need.subjects, need.always) == ("fetch", (name,), (name,))
    assert need.detail == "größe & co"
    assert made.tool.effect == "read"
    assert not made.tool.repeatable(made.arguments())
    own = Asking(bench, "brave", None).need()
    assert own.subjects == ("api.search.brave.com",)


def test_without_an_engine_there_is_no_tool():
    search = SearchTools({})
    search.configure(Configuration(), ())
    assert search.tools() == {}
    search.configure(Configuration(web_search=WebSearch("brave")), ())
    assert list(search.tools()) == ["web_search"]
    search.configure(Configuration(), ())
    assert search.tools() == {}


async def test_nothing_is_an_answer_that_says_why(asking):
    nothing = {**SEARXNG, "results": [], "answers": []}
    async with serving(answer(nothing)) as server:
        found = await asking("searxng", server).ask()
    assert found.split("\n") == [
        "Nothing was found.",
        "(Perhaps: size)",
        "(No answer from google.)",
    ]
    async with serving(answer({"type": "search", "query": {}})) as server:
        assert await asking("brave", server).ask() == "Nothing was found."


@pytest.mark.parametrize(
    ("engine", "sent", "problem"),
    [
        ("brave", answer(NO_KEY, 422), "does not accept the key. The user can fix this: Check the"),
        ("brave", answer(NO_KEY, 401), "does not accept the key"),
        ("brave", answer(TOO_LONG, 422), "answers 422. The server says: .*400 characters"),
        ("brave", status(429, b"slow down"), "no more searches for now.*slow down"),
        ("searxng", status(401, b"who?"), "does not accept the key"),
        ("searxng", status(403, b"Forbidden"), "add `json` to `search.formats`.*Forbidden"),
        ("searxng", status(500, b"broken"), "answers 500. The server says: broken"),
        ("searxng", status(200, b"<html>", Content_Type="text/html"), "text/html instead of JSON"),
        ("searxng", status(302, Location="https://elsewhere.example/"), "redirects to elsewhere"),
        ("searxng", answer([1]), "can't be decoded"),
        ("brave", answer({"web": {"results": [{"url": 1}]}}), "can't be decoded"),
        ("brave", status(200, b"[" * 9999, Content_Type="application/json"), "can't be decoded"),
    ],
)
async def test_what_goes_wrong_is_said_without_the_key(asking, engine, sent, problem):
    async with serving(sent) as server:
        found = await asking(engine, server, api_key_env="SEARCH_KEY").refused()
    assert len(server.received) == 1
    assert re.search(problem, found), found


async def test_a_key_that_is_not_accepted_is_got_anew_once(asking, tmp_path):
    kept = tmp_path / "keys"
    kept.write_text("old-key-of-mine\nnew-key-of-mine\n")
    take = f"head -1 {kept}; sed -i 1d {kept}"
    async with serving(answer(NO_KEY, 422), answer(BRAVE)) as server:
        made = asking("brave", server, api_key_command=("sh", "-c", take))
        assert "example.org" in await made.ask()
    sent = [request.headers["x-subscription-token"] for request in server.received]
    assert sent == ["old-key-of-mine", "new-key-of-mine"]
    assert made.search.secrets() == ("old-key-of-mine", "new-key-of-mine")


async def test_a_key_that_a_result_repeats_is_redacted(asking):
    told = {"web": {"results": [{"url": f"https://x/?k={KEY}", "title": KEY}]}}
    async with serving(answer(told)) as server:
        found = await asking("brave", server, api_key_env="SEARCH_KEY").ask()
    assert found == "1. [secret]\n   https://x/?k=[secret]"


@pytest.mark.promise("G13")
async def test_a_query_that_holds_a_key_is_not_sent(asking):
    async with serving(answer(BRAVE)) as server:
        assert "contains a key" in await asking("brave", server).refused("of-a-provider")
        assert "is empty" in await asking("brave", server).refused("  ")
    assert not server.received


async def test_an_engine_that_takes_too_long_is_given_up(asking, monkeypatch):
    monkeypatch.setattr(keyed_server, "SEARCH_S_MAX", 0.3)
    async with serving(hanging(b"{")) as server:
        assert "instead of JSON" in await asking("searxng", server).refused()


texts = st.builds(lambda piece, times: piece * times, st.text(max_size=20), st.integers(1, 99))
hits = st.fixed_dictionaries(
    {},
    optional={
        "url": texts | st.none(),
        "title": texts | st.none(),
        "content": texts | st.none(),
        "description": texts | st.none(),
        "publishedDate": texts | st.none(),
        "page_age": texts | st.none(),
    },
)
RESULT = re.compile(r"^\d+\. ", re.MULTILINE)


@given(found=st.lists(hits, max_size=12))
def test_whatever_a_result_says_the_list_is_bounded_and_has_one_form(found):
    sent = ({"results": found}, {"web": {"results": found}})
    for told, read in zip(sent, (read_searxng, read_brave), strict=True):
        shown = read(json.dumps(told).encode("utf-8", "replace"))
        assert len(shown.encode()) < BYTES_MAX
        lines = shown.split("\n")
        assert all(line.isprintable() for line in lines)
        assert sum(not line.startswith("   ") for line in lines) <= RESULTS_MAX


@given(data=st.binary(max_size=200), place=st.integers(0, 1000))
def test_an_answer_that_is_cut_or_damaged_is_results_or_a_failure(data, place):
    for told, read in ((SEARXNG, read_searxng), (BRAVE, read_brave)):
        whole = json.dumps(told).encode()
        for body in (data, whole[:place], whole[:place] + data + whole[place:]):
            with suppress(ToolFailure):
                assert isinstance(read(body), str)
