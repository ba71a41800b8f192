"""G13 from end to end: wherever a key comes from, it goes to the provider and nowhere else."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.provider import called, config_for, said
from support.daemon import Daemon
from support.frontend import Frontend
from support.http_server import events, serving, status
from tiller_protocol.codec import encode_event
from tiller_protocol.events import TurnEnded

KEY = "sk-canary-0123456789abcdef"
KEYRING = {"PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring"}

PRY = "env; cat /proc/self/environ | tr '\\0' '\\n'; cat {place}/key {place}/*/*/*; echo pried"


class Source:
    """A place that the key is in; `line` configures it, `variables` are the daemon's."""

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
async def test_g13_a_key_reaches_the_provider_and_nothing_else_whoever_repeats_it(
    kind: str,
    new_daemon: Callable[..., Daemon],
    workspace: Path,
    tmp_path: Path,
    nursery: trio.Nursery,
) -> None:
    """Not the log, an event, an error, the daemon's output, or what a tool brings back."""
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
