"""Runs the login service of `tests/login/node`, acts as the browser, and as the API behind it.

The service is npm `oidc-provider`, behind the rules that OpenAI documents. `plan_answer` makes the
answers of an API that refuses what OpenAI refuses if a plan pays.
"""

import http.cookiejar
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
import trio

from support.dialect_responses import check_responses_input
from support.http_server import Answer, LocalServer, events, status
from tiller_daemon.models.accounts.chatgpt import PLAN_SCOPE, LoginService

NODE = Path(__file__).parents[1] / "login" / "node"

CALLBACK = "/auth/callback"

REFUSED = {
    *("background", "conversation", "max_output_tokens", "max_tool_calls", "metadata"),
    *("moderation", "multi_agent", "prompt", "prompt_cache_retention", "safety_identifier"),
    *("temperature", "top_logprobs", "top_p", "truncation", "user", "previous_response_id"),
}
"""The fields of which the page "Preview limitations" says that they are refused."""

REFUSED_TOOLS = {
    *("image_generation", "file_search", "code_interpreter", "computer", "mcp", "tool_search"),
    *("programmatic_tool_calling", "function", "custom"),
}
"""The types of tools that it refuses; functions belong in a namespace."""

LISTING = {
    "models": [
        {"slug": "hidden", "display_name": "Hidden", "visibility": "hide"},
        {"slug": "gpt-6-sol", "display_name": "GPT-6 Sol", "visibility": "list",
         "context_window": 272_000},
        {"slug": "gpt-6-luna", "display_name": "GPT-6 Luna", "visibility": "list"},
    ]
}  # fmt: skip


class LoginPeer:
    """The service at `url`, for tokens of the API at `resource`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.resource = "http://127.0.0.1:1/v1"

    @property
    def service(self) -> LoginService:
        """The addresses for tiller."""
        accounts = f"{self.url}/api/accounts"
        token = f"{accounts}/oauth/token"
        return LoginService(self.url, f"{accounts}/authorize", token, self.resource)

    def behave(self, **changes: Any) -> None:
        """Set how the service behaves from now on; without `changes`, as documented."""
        _post(f"{self.url}/_control", json.dumps({"resource": self.resource, **changes}))

    def seen(self, path: str = "") -> list[dict[str, Any]]:
        """Return what it has been asked since the last call, of one kind or all."""
        with urllib.request.urlopen(f"{self.url}/_seen", timeout=10) as answer:
            return [one for one in json.load(answer) if path in one["path"]]

    def post(self, **form: str) -> tuple[int, dict[str, Any]]:
        """Ask for tokens, as a thief does."""
        form = {"resource": self.resource, **form}
        return _post(f"{self.url}/api/accounts/oauth/token", urllib.parse.urlencode(form))


async def browse(url: str) -> str:
    """Open an address as a browser does, agree to everything; return the redirect's address."""
    return await trio.to_thread.run_sync(_browse, url)


async def visit(address: str) -> tuple[int, str]:
    """Open the redirect's address; return the status and the text of the page."""

    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(address, timeout=30) as page:
                return page.status, page.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await trio.to_thread.run_sync(get)


@contextmanager
def running_peer() -> Generator[LoginPeer]:
    """Run the service; skip the test if its package is not installed."""
    if shutil.which("node") is None or not (NODE / "node_modules").is_dir():
        reason = "oidc-provider is not installed: scripts/setup needs node and npm"
        if os.environ.get("TILLER_PEERS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with subprocess.Popen(
        ["node", "--no-warnings", "server.mjs"], cwd=NODE, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout
        assert process.stdin
        address = process.stdout.readline().strip()
        assert address.startswith("http"), "the login service did not start"
        yield LoginPeer(address)
        process.stdin.close()


def plan_answer(peer: LoginPeer, server: LocalServer, *items: dict[str, Any]) -> Answer:
    """Answer with these items if the last request is one that a plan pays for; else refuse it."""

    async def answer(stream: trio.abc.Stream) -> None:
        received = server.received[-1]
        token = received.headers.get("authorization", "").removeprefix("Bearer ")
        if problem := await trio.to_thread.run_sync(_token_problem, peer, token):
            body = {"detail": {"error_code": "invalid_token", "reason": problem}}
            await status(401, body)(stream)
        elif problem := plan_problem(received.data):
            error = {"code": "subscription_sharing_unsupported_capability", "message": problem}
            await status(400, {"error": {**error, "param": problem}})(stream)
        else:
            await events(*frames(*items))(stream)

    return answer


def plan_problem(data: bytes) -> str:
    """Return why OpenAI refuses this body if a plan pays; empty if it does not."""
    body = json.loads(data)
    if found := REFUSED & set(body):
        return ", ".join(sorted(found))
    if body.get("store") is not False or body.get("stream") is not True:
        return "store or stream"
    if not isinstance(body["input"], list):
        return "input"
    if any(one.get("role") == "system" for one in body["input"]):
        return "a system message"
    tools = body.get("tools", [])
    if found := {one["type"] for one in tools} & REFUSED_TOOLS:
        return f"tools: {', '.join(sorted(found))}"
    names = {one["name"] for one in tools if one["type"] == "namespace"}
    for one in body["input"]:
        if one["type"] == "function_call" and names and one.get("namespace") not in names:
            return "a call outside of the namespaces"
    bare = [{k: v for k, v in one.items() if k != "namespace"} for one in body["input"]]
    check_responses_input(bare)
    return ""


def message(text: str) -> dict[str, Any]:
    """Return an item of text."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "phase": "final_answer", "content": content}


def call(name: str, namespace: str = "tiller", **arguments: Any) -> dict[str, Any]:
    """Return an item that calls a tool."""
    item = {"type": "function_call", "call_id": f"call_{name}", "name": name}
    return {**item, "namespace": namespace, "arguments": json.dumps(arguments)}


def frames(*items: dict[str, Any]) -> list[bytes]:
    """Return a whole answer; as observed, its last frame does not repeat the items."""
    made: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        item = {"id": f"item_{index}", "status": "completed", **item}
        made.append({"type": "response.output_item.added", "output_index": index, "item": item})
        made.append({"type": "response.output_item.done", "output_index": index, "item": item})
    response = {"status": "completed", "output": [], "usage": {"input_tokens": 5}}
    made.append({"type": "response.completed", "response": response})
    return [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in made]


def _token_problem(peer: LoginPeer, token: str) -> str:
    with urllib.request.urlopen(f"{peer.url}/jwks", timeout=10) as answer:
        (key,) = jwt.PyJWKSet.from_dict(json.load(answer)).keys
    try:
        claims = jwt.decode(token, key, ["RS256"], audience=peer.resource, issuer=peer.url)
    except jwt.PyJWTError as error:
        return str(error)
    return "" if PLAN_SCOPE in claims["scope"] else "no permission"


class _UntilCallback(urllib.request.HTTPRedirectHandler):
    found = ""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str):
        if urllib.parse.urlsplit(newurl).path == CALLBACK:
            self.found = newurl
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _browse(url: str) -> str:
    last = _UntilCallback()
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    browser = urllib.request.build_opener(last, cookies)
    try:
        with browser.open(url, timeout=20):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        if not last.found:
            raise
    return last.found


def _post(url: str, text: str) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(url, data=text.encode())
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
