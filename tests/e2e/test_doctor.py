"""`tiller doctor` checks every provider's key and server, both programs, and the sandbox."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from e2e.provider import said
from e2e.test_models import free_port
from support import tiny_mcp
from support.daemon import CONFIG, Daemon
from support.http_server import serving, status
from tiller_protocol import PROTOCOL_VERSION, VERSION

KEY = "sk-canary-0123456789"

PROVIDERS = """
model = "good/qwen"

[providers.good]
api = "openai_chat"
base_url = "{good}"

[providers.locked]
api = "anthropic_messages"
base_url = "{locked}"
api_key_env = "LOCKED_KEY"

[providers.down]
api = "openai_chat"
base_url = "http://127.0.0.1:{down}/v1"

[providers.keyless]
api = "openai_responses"
api_key_env = "NOT_SET"

[providers.far]
api = "openai_chat"
base_url = "https://models.invalid/v1"
"""


SERVERS = """
[mcp.works]
command = {here}

[mcp.asleep]
command = {here}
enabled = false

[mcp.broken]
command = ["/nowhere/server"]

[lsp.absent]
command = ["/nowhere/lsp"]
files = {{ ".cob" = "cobol" }}
"""


class Report(NamedTuple):
    """The exit status of `tiller doctor --json`, and its findings by subject."""

    status: int
    findings: dict[str, list[tuple[str, str]]]
    text: str

    def provider(self, name: str) -> tuple[str, str]:
        (found,) = [one for one in self.findings["provider"] if one[1].startswith(name)]
        return found


async def doctor(daemon: Daemon, *options: str, **variables: str) -> Report:
    done = await trio.run_process(
        [sys.executable, "-m", "tiller_client", "doctor", "--json", *options],
        capture_stdout=True,
        check=False,
        env=daemon.variables | variables,
    )
    findings: dict[str, list[tuple[str, str]]] = {}
    for line in done.stdout.splitlines():
        found = json.loads(line)
        findings.setdefault(found["subject"], []).append((found["verdict"], found["text"]))
    return Report(done.returncode, findings, done.stdout.decode())


@pytest.mark.nightly
async def test_every_provider_is_there_with_its_key_by_name_and_its_server(
    new_daemon: Callable[..., Daemon],
) -> None:
    """No request leaves without `--online`; then every server is asked for its models."""
    refused = status(401, {"error": {"message": "no such key"}})
    async with serving(said("hi")) as good, serving(refused, lists=False) as locked:
        good.listing = {"data": [{"id": "qwen"}]}
        config = PROVIDERS.format(good=good.base_url, locked=locked.base_url, down=free_port())
        daemon = new_daemon(config)
        daemon.start(LOCKED_KEY=KEY)
        report = await doctor(daemon)
        assert report.status == 0
        assert not locked.received
        assert report.provider("good") == ("ok", f"good at {good.base_url}")
        assert report.provider("locked")[1].endswith("key from the variable LOCKED_KEY")
        assert report.provider("far")[1].endswith("not contacted (add --online)")
        verdict, text = report.provider("down")
        assert verdict == "warn"
        assert "nothing listens at http://127.0.0.1:" in text
        verdict, text = report.provider("keyless")
        assert verdict == "warn"
        assert "NOT_SET, which is not set in the daemon's environment" in text
        online = await doctor(daemon, "--online")
        assert online.status == 0
        assert online.provider("good")[1].endswith("answers")
        assert online.provider("locked")[0] == "warn"
        assert "no such key" in online.provider("locked")[1]
        assert online.provider("far")[0] == "warn"
    broken = await doctor(daemon)
    assert broken.status == 1, "the server of the default model is gone"
    assert broken.provider("good")[0] == "fail"
    assert KEY not in report.text + online.text + broken.text


@pytest.mark.nightly
async def test_versions_programs_and_the_sandbox_are_there_with_and_without_a_daemon(
    new_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    (recordings / "s.jsonl").write_bytes(bytes(3_000_000))
    daemon = new_daemon(f'record = "{recordings}"\n{CONFIG}')
    without = await doctor(daemon)
    assert without.status == 0
    assert without.findings["daemon"][0][0] == "warn"
    daemon.start()
    report = await doctor(daemon)
    assert report.status == 0
    for one in (without, report):
        assert one.findings["tiller"] == [("ok", f"{VERSION}, protocol {PROTOCOL_VERSION}")]
        for program in ("bash", "git", "rg", "python"):
            assert one.findings[program][0][0] == "ok"
        ((verdict, text),) = one.findings["sandbox"]
        assert (verdict, "full_access" in text) == ("warn", True)
    ((_, disk),) = report.findings["disk"]
    assert disk.startswith(f"{daemon.places.state} uses ")
    assert "tiller.db " in disk
    assert report.findings["recordings"] == [("ok", f"{recordings} uses 3.0MB")]
    expected = f"tillerd {VERSION} answers, protocol {PROTOCOL_VERSION}"
    assert report.findings["daemon"] == [("ok", expected)]
    daemon.configure(CONFIG + '[providers.p]\napi = "openai_chat"\napi_key_env = "LATER_KEY"\n')
    report = await doctor(daemon, LATER_KEY=KEY)
    assert report.findings["daemon"][1][0] == "warn"
    assert "LATER_KEY is set here" in report.findings["daemon"][1][1]
    assert KEY not in report.text


@pytest.mark.parametrize("config", ["", 'model = "x/y"\n[providers.x]\napi = "openai_chat"\n'])
async def test_without_a_model_that_can_be_used_something_is_broken(
    new_daemon: Callable[..., Daemon], config: str
) -> None:
    daemon = new_daemon(config)
    daemon.start()
    report = await doctor(daemon)
    assert report.status == 1
    assert "no model can be used now" in report.findings["models"][0][1]


async def test_every_server_is_there_with_its_state_and_a_broken_one_is_a_failure(
    new_daemon: Callable[..., Daemon],
) -> None:
    here = json.dumps([sys.executable, tiny_mcp.__file__])
    daemon = new_daemon(CONFIG + SERVERS.format(here=here))
    daemon.start()
    report = await doctor(daemon)
    assert report.status == 1
    by_name = {
        text.partition(" ")[0].rstrip(":"): (verdict, text)
        for verdict, text in report.findings["mcp"]
    }
    assert by_name["works"][0] == "ok"
    assert by_name["works"][1].endswith("tools")
    assert by_name["asleep"] == ("ok", "asleep is not enabled")
    assert by_name["broken"][0] == "fail"
    assert "/nowhere/server was not found" in by_name["broken"][1]
    assert ("warn", "absent is configured, but its program was not found") in report.findings["lsp"]


def test_a_mistake_in_the_file_is_named(new_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    daemon = new_daemon("modell = 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "tiller_client", "doctor"],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env=daemon.variables,
        text=True,
    )
    assert done.returncode == 1
    assert "config.toml, line 1" in done.stdout
