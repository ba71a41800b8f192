"""Tasks of a fleet: a real broker, real daemons and gateways, and the command line."""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from e2e.words import bash, calls, text
from support.daemon import guards
from support.far_homes import end_link
from support.fleet import Host, fleet_of, git, repository, wait_until
from tiller_client.connecting.runtime import daemon_pid
from tiller_client.fleet.gateway import gateway_directory
from tiller_daemon.models.scripted import ScriptStep

LATE_S = 90.0
"""Longest time until a daemon that was killed is there again, on a busy machine."""

COMMIT = "echo two >> a.txt && git -c user.name=t -c user.email=t@t.invalid commit -qam Two"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Generator[Host]:
    with fleet_of(tmp_path_factory.mktemp("f"), 1, 'slots = 2\nlabels = ["gpu"]') as (_, hosts):
        yield hosts[0]


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    return repository(tmp_path / "origin")


def playing(host: Host, *steps: ScriptStep) -> str:
    return host.daemon.script(*steps)


def test_a_task_delivers_its_branch_and_removes_its_worktree(
    host: Host, origin: Path, tmp_path: Path
) -> None:
    model = playing(host, calls(bash(COMMIT)), text("Added two."))
    (task,) = host.run("Add two", origin, "--model", model, "--label", "gpu")
    ended = host.ended(task)
    report = ended["report"]
    assert (ended["state"], report["outcome"], report["message"]) == (
        *("done", "completed", "Added two."),
    )
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(origin), str(clone))
    assert not host.tiller("fleet", "fetch", task, cwd=clone).returncode
    assert git(clone, "show", f"{report['branch']}:a.txt") == "one\ntwo"
    wait_until(lambda: not any(host.repositories.glob("*/*.worktrees/[!.]*")))


def test_a_task_pushes_its_branch(host: Host, origin: Path) -> None:
    model = playing(host, calls(bash(COMMIT)), text("Added two."))
    (task,) = host.run("Add two", f"{origin}@main", "--model", model, "--push")
    report = host.ended(task)["report"]
    assert report["pushed"]
    assert git(origin, "show", f"{report['branch']}:a.txt") == "one\ntwo"


def test_changes_that_were_not_committed_are_kept(host: Host, origin: Path) -> None:
    model = playing(host, calls(bash("echo two >> a.txt")), text("Changed."))
    (task,) = host.run("Change", origin, "--model", model)
    report = host.ended(task)["report"]
    assert report["patch"]
    assert not report.get("commits")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("ext::sh -c id", "transport 'ext' not allowed"),
        pytest.param("/nowhere/at/all", "not appear to be a git", marks=pytest.mark.nightly),
        pytest.param("{origin}@nobranch", "tag or commit 'nobranch'", marks=pytest.mark.nightly),
    ],
)
def test_a_task_says_why_it_could_not_start(
    host: Host, origin: Path, address: str, says: str
) -> None:
    (task,) = host.run("Go", address.format(origin=origin))
    report = host.ended(task)["report"]
    assert report["outcome"] == "not_started"
    assert says in report["problem"]


def test_a_repository_that_is_away_for_a_moment_is_fetched_later(
    host: Host, origin: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    (task,) = host.run("Go", link, "--model", playing(host, text("Done.")))
    wait_until(lambda: any(host.repositories.glob("*/link/.git/FETCH_HEAD")))
    link.symlink_to(origin)
    assert host.ended(task)["report"]["outcome"] == "completed"


def test_a_task_waits_for_a_host_with_its_label_and_can_be_cancelled(
    host: Host, origin: Path
) -> None:
    (task,) = host.run("Go", origin, "--label", "tpu")
    (listed,) = [one["task"] for one in host.lines("fleet", "ls") if one["type"] == "task"]
    assert (listed["id"], listed["state"]) == (task, "queued")
    assert "cancelled before it began" in host.tiller("fleet", "cancel", task).stdout
    assert host.ended(task)["state"] == "cancelled"
    assert "has already ended" in host.tiller("fleet", "cancel", task).stderr


def test_a_running_task_is_cancelled(host: Host, origin: Path) -> None:
    model = playing(host, calls(bash("sleep 1000")), text("Late."))
    (task,) = host.run("Sleep", origin, "--model", model)
    host.session_of(task)
    assert not host.tiller("fleet", "cancel", task).returncode
    ended = host.ended(task)
    assert (ended["state"], ended["report"]["outcome"]) == ("cancelled", "interrupted")


def test_a_draining_host_takes_no_tasks(host: Host, origin: Path) -> None:
    assert not host.tiller("fleet", "drain", host.name).returncode
    (task,) = host.run("Go", origin, "--model", playing(host, text("Done.")))
    assert "draining" in host.tiller("fleet", "ls").stdout
    assert host.tasks()[task]["state"] == "queued"
    assert not host.tiller("fleet", "drain", host.name, "--undo").returncode
    assert host.ended(task)["state"] == "done"
    for words in ((), ("--undo",)):
        assert not host.tiller("fleet", "drain", host.name, *words).returncode


def test_a_stopped_daemon_stays_stopped_and_its_host_takes_no_tasks(
    host: Host, origin: Path
) -> None:
    assert not host.tiller("daemon", "stop", "--yes").returncode
    (task,) = host.run("Go", origin, "--model", playing(host, text("Done.")))
    wait_until(lambda: "no daemon is running" in host.tiller("fleet", "ls").stdout)
    assert host.tasks()[task]["state"] == "queued"
    asked = host.tiller("--host", f"fleet:{host.name}", "ls")
    end_link(host.name, host.daemon.places)
    assert f"no daemon is running on {host.name}" in asked.stderr
    assert daemon_pid(host.daemon.places) is None
    assert host.daemon.kill9() == 0  # it had ended by itself
    host.daemon.start()
    assert host.ended(task)["state"] == "done"


def test_a_gateway_that_was_killed_goes_on_with_its_tasks(host: Host, origin: Path) -> None:
    go_on = origin.parent / "go-on"
    wait = bash(f"while [ ! -e {go_on} ]; do sleep 0.05; done; {COMMIT}")
    (task,) = host.run("Wait", origin, "--model", playing(host, calls(wait), text("Done.")))
    host.session_of(task)
    host.stop_gateway(signal.SIGKILL)
    go_on.touch()
    host.start_gateway()
    ended = host.ended(task)
    assert (ended["state"], ended.get("attempt", 1), ended["report"]["commits"]) == ("done", 1, 1)


def test_a_guard_that_was_killed_is_started_again_while_a_task_runs(
    host: Host, origin: Path
) -> None:
    go_on = origin.parent / "go-on"
    wait = bash(f"while [ ! -e {go_on} ]; do sleep 0.05; done; {COMMIT}")
    model = playing(host, calls(wait), text("Done."))
    (task,) = host.run("Wait", origin, "--model", model, "--retry", "1")
    host.session_of(task)
    command = f"tiller_client.fleet.guard\0{gateway_directory(host.daemon.places)}"
    wait_until(lambda: guards(command))
    (first,) = guards(command)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: guards(command) - {first})  # with the next renewal of the lease
    go_on.touch()
    assert host.ended(task)["state"] == "done"


def test_a_turn_that_its_daemon_has_cut_off_is_continued(host: Host, origin: Path) -> None:
    steps = calls(bash("touch began; sleep 1000")), text("Done.")
    (task,) = host.run("Wait", origin, "--model", playing(host, *steps))
    wait_until(lambda: any(host.repositories.glob("*/*.worktrees/*/began")))
    host.daemon.kill9()  # the gateway starts the next one
    assert host.ended(task, LATE_S)["report"]["outcome"] == "completed"
    assert not host.tiller("daemon", "stop", "--yes").returncode
    host.daemon.start()


def test_the_stream_has_the_bytes_of_the_log(host: Host, origin: Path) -> None:
    """All but deltas, and large events, too."""
    model = playing(host, calls(bash("seq 200000")), text("x" * 2_000_000, pieces=3))
    (task,) = host.run("Print", origin, "--model", model)
    session = host.ended(task)["session_id"]
    published = host.tiller("fleet", "logs", f"{session}@{host.name}", "--json").stdout
    logged = host.tiller("log", session, "--json").stdout.splitlines(keepends=True)
    assert published == "".join(one for one in logged if '"item_delta"' not in one)
    assert max(map(len, logged)) > 1_100_000


def test_two_hosts_cannot_have_one_name(host: Host, tmp_path: Path) -> None:
    other = {**host.daemon.variables, "TILLER_HOME": str(tmp_path / "t")}
    config = tmp_path / "t" / "config"
    config.mkdir(parents=True)
    text_ = (host.daemon.places.config / "config.toml").read_text()
    (config / "config.toml").write_text(text_)
    mine, host.daemon.variables = host.daemon.variables, other
    try:
        done = host.tiller("gateway")
        host.tiller("daemon", "stop")
    finally:
        host.daemon.variables = mine
    assert done.returncode
    assert f"another host of the fleet has the name {host.name}" in done.stderr


def test_a_task_that_is_submitted_again_with_its_id_is_one_task(host: Host, origin: Path) -> None:
    go = "--model", playing(host, calls(bash(COMMIT)), text("Added two.")), "--id", "ci-4711"
    assert host.run("Add two", origin, *go) == ["ci-4711"]
    assert host.ended("ci-4711")["report"]["branch"] == "fleet-ci-4711-1"
    (line,) = host.lines("fleet", "run", "Add two", "--repo", str(origin), *go)
    assert line["state"] == "done"
    assert [one for one in host.tasks() if "ci-4711" in one] == ["ci-4711"]
    other = host.tiller("fleet", "run", "Add three", "--repo", str(origin), *go)
    assert other.returncode == 2
    assert "there is a task ci-4711 with another prompt" in other.stderr


@pytest.mark.parametrize("word", ["a.b", "A", "-a", "x" * 65])
def test_an_id_that_no_task_may_have_is_refused(host: Host, word: str) -> None:
    done = host.tiller("fleet", "run", "Go", "--repo", "/nowhere", f"--id={word}")
    assert done.returncode == 2
    assert "is no id for a task" in done.stderr


def test_tasks_are_taken_in_the_order_of_their_submission(host: Host, origin: Path) -> None:
    """A given id, which sorts after those that are made, waits no longer than they."""
    model = "--model", playing(host, text("Done."))
    assert not host.tiller("fleet", "drain", host.name).returncode
    (first,) = host.run("Go", origin, *model, "--id", "z1")
    tasks = [first, *host.run("Go", origin, *model, "--n", "3")]
    assert not host.tiller("fleet", "drain", host.name, "--undo").returncode
    sessions = [host.ended(task)["session_id"] for task in tasks]
    assert sessions[0] in sorted(sessions)[:2], "it began with the first two, in the two slots"


def test_a_variable_replaces_a_key_of_the_configuration(host: Host) -> None:
    host.daemon.variables["TILLER_FLEET__SERVERS"] = '["nats://127.0.0.1:1"]'
    try:
        done = host.tiller("fleet", "ls")
    finally:
        del host.daemon.variables["TILLER_FLEET__SERVERS"]
    assert done.returncode
    assert "127.0.0.1:1" in done.stderr
