"""The files that systemd and launchd are given, and what becomes of a machine without either."""

import os
import plistlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.event_bodies import Tiller
from tiller_client.connecting.starting import DAEMON_COMMAND
from tiller_client.service import find_service, start_command
from tiller_client.service.definition import Definition, define
from tiller_client.service.systemd import _path, _quoted
from tiller_client.verbs.machine import service as verb
from tiller_protocol.places import find_places

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)

AGENT_KEYS = {
    *("Label", "ProgramArguments", "EnvironmentVariables", "WorkingDirectory", "StandardOutPath"),
    *("StandardErrorPath", "RunAtLoad", "KeepAlive", "ExitTimeOut", "ProcessType"),
}
"""Those of launchd.plist(5) that are used; a key that it does not know is ignored silently."""

PAGE = Path(__file__).parents[2] / "docs" / "service.md"

needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed"
)


def definition(root: Path, command: tuple[str, ...], **variables: str) -> Definition:
    environ = {"HOME": str(root), **variables}
    places = find_places(environ, "linux", 1000)
    return define(places, environ, command, no_new_privileges=True)


def unquoted(text: str) -> str:
    """What systemd makes of a word in quotes: systemd.syntax(7) and systemd.unit(5)."""
    assert text[0] == text[-1] == '"'
    pieces = re.findall(r"\\x[0-9a-f]{2}|\\[\"\\]|%%|[^\\%\"]", text[1:-1])
    assert "".join(pieces) == text[1:-1]
    plain = (
        bytes([int(piece[2:], 16)]) if piece[:2] == "\\x" else piece[-1:].encode()
        for piece in pieces
    )
    return b"".join(plain).decode()


@given(TEXT)
def test_every_word_survives_its_quotes(word: str) -> None:
    quoted = _quoted(word)
    assert quoted.isascii()
    assert quoted.isprintable()
    assert unquoted(quoted) == word


@needs_systemd
@pytest.mark.parametrize("name", ["plain", "my home 100% $HOME"])
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    root.mkdir()
    python = root / "python"
    python.symlink_to(sys.executable)
    unit = find_service({"HOME": str(root)}, "linux")
    assert unit
    found = definition(root, (str(python), "-m", "a b"), PATH=f"{root}:/bin", LANG="C")
    unit.file.parent.mkdir(parents=True)
    unit.file.write_bytes(unit.render(found))
    (tmp_path / "run").mkdir(mode=0o700)
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit.file)],
        env={"HOME": str(root), "XDG_RUNTIME_DIR": str(tmp_path / "run"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_unit_has_the_settings_that_the_page_explains(tmp_path: Path) -> None:
    unit = find_service({"HOME": str(tmp_path)}, "linux")
    assert unit
    lines = unit.render(definition(tmp_path, ("/bin/python",))).decode().splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line)
    rows = re.findall(r"^\| `(\w+)(?:=(\S+))?` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 9
    for name, value in rows:
        assert settings[name] == (value or settings[name])


@given(TEXT.filter(lambda text: text.isprintable()))
def test_the_launch_agent_says_what_was_defined(word: str) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory)
        agent = find_service({"HOME": directory}, "darwin")
        assert agent
        found = definition(root, ("/bin/python", word), PATH=word or "/bin")
        read = plistlib.loads(agent.render(found))
    assert read.keys() == AGENT_KEYS
    assert read["ProgramArguments"] == ["/bin/python", word]
    assert read["EnvironmentVariables"] == {"PATH": word or "/bin"}
    assert read["StandardOutPath"] == str(root / ".local/state/tiller/daemon.log")
    assert read["KeepAlive"] == {"SuccessfulExit": False}
    assert agent.file == root / "Library" / "LaunchAgents" / "tillerd.plist"
    assert not agent.is_enabled()


def test_a_percent_sign_in_a_path_begins_no_specifier() -> None:
    assert _path(Path("/home/100%/x")) == "/home/100%%/x"


def test_keys_are_not_written_into_the_file(tmp_path: Path) -> None:
    found = definition(tmp_path, ("/bin/python",), PATH="/bin", OPENAI_API_KEY="sk-1")
    assert found.variables == {"PATH": "/bin"}


def test_each_home_has_a_service_of_its_own() -> None:
    homes: list[dict[str, str]] = [{}, {"TILLER_HOME": "/a"}, {"TILLER_HOME": "/b"}]
    services = [find_service({"HOME": "/h", **home}, "linux") for home in homes]
    assert len({(one.name, one.file) for one in services if one}) == 3
    assert find_service({"HOME": "/h"}, "freebsd") is None


def test_install_without_a_manager_says_what_to_run_and_the_client_needs_none(
    tiller: Tiller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine with `systemctl` whose systemd can't be reached: a file, a sentence, no harm."""
    if sys.platform != "linux" or not shutil.which("systemctl"):
        pytest.skip("systemctl is not installed")
    home = tmp_path / "my home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    status, _, err = tiller("daemon", "install")
    assert status == 1
    unit = find_service(os.environ, "linux")
    assert unit
    assert unit.file.stat().st_mode & 0o777 == 0o644
    assert f"\n  systemctl --user enable --quiet {unit.name}" in err
    assert start_command(os.environ) == ()
    status, out, _ = tiller("daemon", "uninstall")
    assert (status, list(home.iterdir())) == (0, [])
    assert out.startswith(f"uninstalled {unit.name}")


def test_install_print_writes_nothing(
    tiller: Tiller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform != "linux" or not shutil.which("systemctl"):
        pytest.skip("systemctl is not installed")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    status, out, _ = tiller("daemon", "install", "--print")
    assert status == 0
    words = " ".join(f'"{word}"' for word in DAEMON_COMMAND)
    assert f"ExecStart={words}\n" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("prefix", "kind"),
    [
        (".cache/uv/archive-v0/x", "cache"),
        (".local/share/uv/tools/tillerd", "lasting"),
        (".local/share/pipx/venvs/tillerd", "lasting"),
        ("src/project/.venv", "lasting"),
    ],
)
def test_an_environment_that_disappears_is_no_place_for_a_service(
    tiller: Tiller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, kind: str
) -> None:
    for variable in ("XDG_CACHE_HOME", "UV_CACHE_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert bool(verb._cache_of(tmp_path / prefix)) is (kind == "cache")
    if kind == "cache" and find_service(os.environ) and shutil.which("systemctl"):
        monkeypatch.setattr(sys, "prefix", str(tmp_path / prefix))
        status, _, err = tiller("daemon", "install")
        assert status == 1
        assert "uv tool install" in err
        assert list(tmp_path.iterdir()) == []
