"""G13 from end to end: a key from any source goes to the provider and nowhere else."""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.provider import DONE, called, config_for, frame, said
from e2e.words import always, bash, calls
from support.daemon import Daemon
from support.frontend import Frontend
from support.http_server import events, serving, status
from support.proxy import proxying
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.codec import encode_event
from tiller_protocol.events import TurnEnded
from tiller_protocol.ops import Catalog

KEY = "sk-canary-0123456789abcdef"
KEYRING = {"PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring"}

PRY = "env; cat /proc/self/environ | tr '\\0' '\\n'; cat {place}/key {place}/*/*/*; echo pried"


class Source:
    """A source of the key; `line` configures it, and `variables` are the daemon's."""

    def __init__(self, kind: str, place: Path) -> None:
        file = place / "key"
        file.write_text(f"{KEY}\n")
        file.chmod(0o600)
        self.variables: dict[str, str] = {}
        match kind:
            case "env":
                self.line = 'api_key_env = "MY_OWN"'
                self.variables = {"MY_OWN": KEY, "OTHER": f"Bearer {KEY}"}
            case "command":
                self.line = f'api_key_command = ["sh", "-c", "cat {file}; cat {file} >&2"]'
            case "file":
                self.line = f'api_key_file = "{file}"'
            case _:
                self.line = 'api_key_keyring = "work"'
                self.variables = {**KEYRING, "XDG_DATA_HOME": str(place)}
                self._store()

    def _store(self) -> None:
        code = f"import keyring; keyring.set_password('tiller', 'work', {KEY!r})"
        subprocess.run([sys.executable, "-c", code], env=self.variables, check=True)


@pytest.mark.parametrize("kind", ["env", "command", "file", "keyring"])
@pytest.mark.promise("G13")
async def test_a_key_reaches_the_provider_and_nothing_else_whoever_repeats_it(
    kind: str,
    new_daemon: Callable[..., Daemon],
    workspace: Path,
    tmp_path: Path,
    nursery: trio.Nursery,
) -> None:
    """Nothing else: log, events, errors, the daemon's output, or tool results."""
    place = tmp_path / "kept"
    place.mkdir()
    source = Source(kind, place)
    answers = [
        called(("bash", {"command": PRY.format(place=place)})),
        said("done"),
        status(400, {"error": {"message": f"no {KEY}"}}, X_Echo=KEY),
        status(401, f"bad key {KEY}".encode(), WWW_Authenticate=f"Bearer {KEY}"),
        status(307, Location=f"https://elsewhere/?key={KEY}"),
        status(200, KEY.encode(), Content_Type=f"text/{KEY}"),
        events(f'data: {{"error":{{"message":"{KEY}","code":400}}}}\n\n'.encode()),
    ]
    async with serving(*answers) as server:
        config = config_for(server.base_url).replace(
            "[providers.scr", f"{source.line}\n[providers.scr"
        )
        daemon = new_daemon(config)
        daemon.start(**source.variables)
        frontend = await Frontend.connect(daemon, nursery)
        session_id = await frontend.session(workspace, model="local/m", approve="always")
        endings: list[TurnEnded] = []
        for _ in answers[1:]:
            await frontend.say(session_id)
            endings.append(await frontend.turn_ended(session_id, len(endings) + 1))
        shown = b"".join(encode_event(event) for event in frontend.events(session_id))
        await frontend.close()
    assert [ending.outcome for ending in endings] == ["completed", *["failed"] * 5]
    assert {one.headers["authorization"] for one in server.received} == {f"Bearer {KEY}"}
    assert b"pried" in shown
    assert shown.count(b"[secret]") >= 5
    assert KEY.encode() not in shown
    assert KEY not in daemon.said
    files = [path for path in daemon.home.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


def _in_pieces(field: str, text: str) -> list[bytes]:
    """Return the text as frames with three characters each."""
    return [frame({field: text[at : at + 3]}) for at in range(0, len(text), 3)]


def _calling(call_id: str, name: str, arguments: str) -> list[bytes]:
    head = {"index": 0, "id": call_id, "function": {"name": name, "arguments": arguments[:20]}}
    rest = {"index": 0, "function": {"arguments": arguments[20:]}}
    return [frame({"tool_calls": [head]}), frame({"tool_calls": [rest]}), frame({}, "tool_calls")]


ESCAPED = {
    "JSON": KEY.replace("-", "\\u002d"),
    "URL": KEY.replace("-", "%2D"),
    "URL in lower case": KEY.replace("-", "%2d"),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64 of a header": base64.b64encode(f"Bearer {KEY}".encode()).decode(),
    "base64 of a login": base64.b64encode(f"user:{KEY}".encode()).decode(),
}


@pytest.mark.promise("G13")
async def test_a_provider_that_repeats_its_key_in_an_answer_tells_nobody(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    """In text, thinking, calls and the names of models, in pieces; escaped in errors.

    Neither log, events, answers, recording nor the next request have it.
    """
    arguments = json.dumps({"command": f"echo {KEY}"})
    answers = [
        events(*_in_pieces("reasoning_content", f"It is {KEY}."), *_in_pieces("content", "Hm."),
               *_calling(f"call_{KEY}", "bash", arguments), DONE),
        events(*_calling("call_2", f"{KEY}_tool", arguments), DONE),
        events(*_in_pieces("content", f"Your key is {KEY}!"), frame({}, "stop"), DONE),
        *(status(400, {"error": {"message": f"no <{text}>"}}) for text in ESCAPED.values()),
    ]  # fmt: skip
    async with serving(*answers) as server:
        server.listing = {"data": [{"id": "m", "context_length": 9_000}, {"id": f"m-{KEY}"}]}
        config = config_for(server.base_url).replace(
            "[providers.scr", 'api_key_env = "MY_OWN"\n[providers.scr'
        )
        daemon = new_daemon('record = "../recordings"\n' + config)
        daemon.start(MY_OWN=KEY)
        frontend = await Frontend.connect(daemon, nursery)
        catalog = repr(await frontend.must(Catalog(ask=True)))
        session_id = await frontend.session(workspace, model="local/m", approve="always")
        endings: list[TurnEnded] = []
        for _ in answers[2:]:
            await frontend.say(session_id)
            endings.append(await frontend.turn_ended(session_id, len(endings) + 1))
        shown = b"".join(encode_event(event) for event in frontend.events(session_id)).decode(
            errors="replace"
        )
        await frontend.close()
    await daemon.terminate()
    outcomes = [ending.outcome for ending in endings]
    assert outcomes == ["completed", *["failed"] * len(ESCAPED)]
    assert re.search(r"Your key is (s|sk|sk-)?\[secret\]!", shown)
    assert "local/m-[secret]" in catalog
    files = [path for path in daemon.home.rglob("*") if path.is_file()]
    assert any(path.parent.name == "recordings" for path in files)
    heard = {str(path): path.read_text(errors="replace") for path in files}
    heard |= {"events": shown, "said": daemon.said, "catalog": catalog}
    heard |= {f"request {at}": one.data.decode() for at, one in enumerate(server.received)}
    for text in (KEY, "0123456789abcdef", *ESCAPED.values()):
        assert [name for name, data in heard.items() if text in data] == []
    for text in ESCAPED.values():
        assert not any(text[8:-8] in data for data in heard.values()), text


PASSWORD = "s3cret-of-a-proxy"


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.promise("G13")
async def test_the_proxy_gets_its_password_for_a_page_and_nobody_else_does(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery, *, right: bool
) -> None:
    """A page is fetched by the proxy in the daemon's environment; no command sees its password."""
    shown = base64.b64encode(f"user:{PASSWORD}".encode()).decode()
    page = status(200, b"what the page says", Content_Type="text/plain")
    wants = f"Basic {shown}" if right else "Basic else"
    async with proxying(wants=wants) as proxy, serving(page) as pages:
        fetch = CallPart("fetch", arguments={"url": f"http://page.test:{pages.port}/"})
        daemon = new_daemon()
        daemon.start(http_proxy=proxy.address(user=f"user:{PASSWORD}"))
        frontend = await Frontend.connect(daemon, nursery)
        steps = (calls(fetch), calls(bash("env")), always("done"))
        session_id = await frontend.session(workspace, *steps, approve="always")
        await frontend.say(session_id)
        await frontend.turn_ended(session_id)
        got, tried = frontend.completed_calls(session_id)
        heard = b"".join(encode_event(event) for event in frontend.events(session_id)).decode(
            errors="replace"
        )
        await frontend.close()
    assert proxy.credentials == [f"Basic {shown}"]
    assert ("what the page says" in got.output) is right
    assert right or "407" in got.output
    assert f"http_proxy={proxy.address()}" in tried.output
    assert PASSWORD not in heard
    assert shown[8:-8] not in heard
    assert PASSWORD not in daemon.said
