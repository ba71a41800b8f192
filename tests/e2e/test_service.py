"""The daemon as a service of a real systemd: installed, started, watched, reloaded, removed."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon import gone
from support.systemd import Systemd, running_systemd

UNIT = "tillerd.service"
TIMEOUT_S = 60.0


@pytest.fixture
def systemd() -> Iterator[Systemd]:
    with running_systemd() as systemd:
        yield systemd
        systemd.tiller("daemon", "uninstall")


def files(home: Path) -> set[str]:
    """Return the files in a home that a service could leave; without the daemon's and systemd's."""
    found = {path.relative_to(home) for path in home.rglob("*")}
    own = (".local", "run", "output", "notify", ".cache")
    return {str(path) for path in found if path.parts[0] not in own}


def pid_of(systemd: Systemd) -> int:
    return int(systemd.show(UNIT, "MainPID"))


def status(systemd: Systemd) -> dict[str, object]:
    done = systemd.tiller("daemon", "status", "--json")
    return json.loads(done.stdout)


@pytest.mark.nightly
def test_install_starts_the_service_and_uninstall_leaves_nothing(systemd: Systemd) -> None:
    before = files(systemd.home)
    done = systemd.tiller("daemon", "install", SPECIAL_API_KEY="x")
    assert done.returncode == 0, done.stderr
    assert "SPECIAL_API_KEY" in done.stderr
    assert status(systemd)["pid"] == pid_of(systemd)
    assert systemd.show(UNIT, "UnitFileState") == "enabled"
    assert "tillerd.service, started by systemd" in systemd.tiller("daemon", "status").stdout
    again = systemd.tiller("daemon", "install")
    assert again.returncode == 0
    assert f"pid {pid_of(systemd)} keeps running" in again.stderr
    pid = pid_of(systemd)
    removed = systemd.tiller("daemon", "uninstall")
    assert removed.returncode == 0, removed.stderr
    assert gone(pid)
    assert files(systemd.home) == before
    assert systemd.show(UNIT, "LoadState") == "not-found"
    assert systemd.tiller("daemon", "uninstall").stdout == "no service is installed\n"


@pytest.mark.nightly
def test_the_client_starts_the_service_and_a_stop_is_no_failure(systemd: Systemd) -> None:
    systemd.tiller("daemon", "install")
    pid = pid_of(systemd)
    assert systemd.tiller("daemon", "stop").returncode == 0
    assert gone(pid, timeout_s=TIMEOUT_S)
    wait_for(systemd, "ActiveState", "inactive")
    assert systemd.tiller("ls").returncode == 0
    assert pid_of(systemd) not in (0, pid)
    assert systemd.tiller("daemon", "restart").returncode == 0
    assert status(systemd)["pid"] == pid_of(systemd)


def test_a_killed_or_hung_service_starts_again(systemd: Systemd) -> None:
    systemd.tiller("daemon", "install")
    first = pid_of(systemd)
    os.kill(first, signal.SIGKILL)
    assert gone(first, timeout_s=TIMEOUT_S)
    assert systemd.tiller("ls").returncode == 0
    second = pid_of(systemd)
    assert second not in (0, first)
    quicker = Path(systemd.variables["XDG_RUNTIME_DIR"], "systemd/user", f"{UNIT}.d")
    quicker.mkdir(parents=True)
    (quicker / "quicker.conf").write_text("[Service]\nWatchdogSec=2\n")
    systemd.control("daemon-reload")
    systemd.tiller("daemon", "restart")
    third = pid_of(systemd)
    os.kill(third, signal.SIGSTOP)
    assert gone(third, timeout_s=TIMEOUT_S)
    assert systemd.show(UNIT, "Result") in ("watchdog", "success")
    assert systemd.tiller("ls").returncode == 0
    assert pid_of(systemd) not in (0, third)


@pytest.mark.nightly
def test_reload_applies_the_configuration_and_says_what_is_wrong(systemd: Systemd) -> None:
    systemd.tiller("daemon", "install")
    config = systemd.home / ".config" / "tiller" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text("modell = 1\n")
    systemd.control("reload", UNIT)
    text = wait_for(systemd, "StatusText", "modell")
    assert "config.toml" in text
    config.write_text("")
    systemd.control("reload", UNIT)
    wait_for(systemd, "StatusText", "applied")
    assert systemd.show(UNIT, "ActiveState") == "active"


def wait_for(systemd: Systemd, name: str, word: str) -> str:
    """Wait until a property of the unit contains this word, as systemd learns it with a delay."""
    for _ in range(1_000):
        if re.search(rf"\b{word}\b", text := systemd.show(UNIT, name)):
            return text
    raise AssertionError(f"{name} is {text}")


@pytest.mark.nightly
def test_a_service_beside_a_daemon_started_by_hand_gives_way(systemd: Systemd) -> None:
    assert systemd.tiller("daemon", "start").returncode == 0
    pid = status(systemd)["pid"]
    done = systemd.tiller("daemon", "install")
    assert done.returncode == 0
    assert f"the daemon with pid {pid} keeps running" in done.stderr
    other = "tillerd.service is installed, but systemd did not start this daemon"
    assert other in systemd.tiller("daemon", "status").stdout
    assert other in systemd.tiller("doctor").stdout
    with pytest.raises(subprocess.CalledProcessError):
        systemd.control("start", UNIT)
    assert systemd.show(UNIT, "ExecMainStatus") == "75"
    assert systemd.show(UNIT, "NRestarts") == "0"
    log = systemd.tiller("daemon", "logs").stdout
    assert f"tillerd with pid {pid} is running in" in log
    systemd.control("reset-failed", UNIT)
    assert systemd.tiller("daemon", "restart", "--drain").returncode == 0
    assert status(systemd)["pid"] == pid_of(systemd) != pid


@pytest.mark.nightly
def test_the_sandbox_works_in_the_service(systemd: Systemd) -> None:
    """With NoNewPrivileges, the sandbox is the same as for a daemon that was started by hand."""
    by_hand = systemd.tiller("sandbox").stdout
    systemd.tiller("daemon", "install")
    if not by_hand:
        pytest.skip("there is no sandbox on this machine")
    privileges = Path(f"/proc/{pid_of(systemd)}/status").read_text()
    assert re.search(r"^NoNewPrivs:\t1$", privileges, re.MULTILINE)
    report = systemd.tiller("doctor", "--json").stdout.splitlines()
    (found,) = [one for one in map(json.loads, report) if one["subject"] == "sandbox"]
    assert found["text"].splitlines()[0] in by_hand
    assert found["verdict"] == "ok"


def test_the_service_gets_the_keys_of_its_file(systemd: Systemd) -> None:
    kept = systemd.home / ".config" / "tiller" / "environment"
    kept.parent.mkdir(parents=True)
    kept.write_text("OPENAI_API_KEY=sk-1\n")
    kept.chmod(0o644)
    done = systemd.tiller("daemon", "install", OPENAI_API_KEY="sk-1", OTHER_API_KEY="sk-2")
    assert "chmod 600" in done.stderr
    assert "such as OTHER_API_KEY;" in done.stderr
    environment = Path(f"/proc/{pid_of(systemd)}/environ").read_bytes().split(b"\0")
    assert b"OPENAI_API_KEY=sk-1" in environment
