"""Several hosts at once: lists with `--all`, and ids such as `box:8K2Q`, over real OpenSSH servers.

Three hosts are configured beside this machine: `box` answers, `slow` is behind a link that can be
slowed or held, and nothing listens at `gone`.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from e2e.test_remote import OTHER_PROTOCOL
from e2e.words import always, bash, calls
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from support.slow_link import SlowLink
from support.sshd import GONE, SshServer, link_to_tiller, running_sshd
from tiller_client.connecting.remote import CONNECT_S, CONTROL_SOCKET, RemoteDaemon

TIMEOUT_S = 45.0
HOSTS = '\n[hosts]\nbox = "box"\nslow = "slow"\ngone = "gone"\n'

FAR_AWAY_S = 2.0
"""The time of a round trip to a host at the other end of a bad link."""

SOON = ("--within", "3")
"""Too short for a new connection over such a link, which takes about ten round trips."""

LATER = ("--within", "100")
"""Longer than a test may take, so that a verb that waits for a silent host fails the test."""

Done = subprocess.CompletedProcess[str]


class Fleet:
    """This machine's daemon, and those of two hosts."""

    def __init__(self, here: Daemon, far: dict[str, Daemon], link: SlowLink, root: Path) -> None:
        self.here, self.far, self.link, self.root = here, far, link, root
        self.program: tuple[str, ...] = ("-m", "tiller_client")

    def start(self, *words: str, at: Daemon | None = None) -> "subprocess.Popen[str]":
        ssh = self.here.variables["TILLER_SSH"]
        return subprocess.Popen(
            [sys.executable, "-P", *self.program, *words],
            env=(at or self.here).variables | {"TILLER_SSH": ssh},
            cwd=(at or self.here).home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def tiller(self, *words: str, at: Daemon | None = None, timeout_s: float = TIMEOUT_S) -> Done:
        with self.start(*words, at=at) as process:
            out, err = process.communicate(timeout=timeout_s)
            return Done(words, process.returncode, out, err)

    def new(self, name: str) -> str:
        """Make a session on a host, or here for "", and return its id."""
        daemon = self.far[name] if name else self.here
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tiller_client", "new", "--json"],
            env=daemon.variables,
            cwd=daemon.home,
            capture_output=True,
            check=True,
        )
        return json.loads(done.stdout)["session_id"]

    def unlink(self, *names: str, at: Daemon | None = None) -> None:
        """End the connections to these hosts, so that the next verb makes new ones."""
        for name in names:
            control = RemoteDaemon(name, (at or self.here).places).places.runtime / CONTROL_SOCKET
            words = ["ssh", "-F", str(self.root / "hosts.conf"), "-S", str(control), "-O", "exit"]
            subprocess.run([*words, name], capture_output=True, check=False)


def _far(stack: ExitStack, factory: pytest.TempPathFactory) -> tuple[Daemon, SshServer]:
    daemon = stack.enter_context(Daemon(factory.mktemp("d")))
    link_to_tiller(daemon.home)
    variables = daemon.variables | {"PATH": f"{daemon.home}:{os.environ['PATH']}"}
    return daemon, stack.enter_context(running_sshd(factory.mktemp("f"), variables))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with ExitStack() as stack:
        root = tmp_path_factory.mktemp("r")
        box, server = _far(stack, tmp_path_factory)
        slow, slow_server = _far(stack, tmp_path_factory)
        link = stack.enter_context(SlowLink(slow_server.port))
        hosts = server.host("box", server.port) + slow_server.host("slow", link.port) + GONE
        (root / "hosts.conf").write_text(hosts)
        here = Daemon(tmp_path_factory.mktemp("h"), CONFIG + HOSTS)
        here.variables["TILLER_SSH"] = f"ssh -F {root}/hosts.conf"
        stack.enter_context(here)
        fleet = Fleet(here, {"box": box, "slow": slow}, link, root)
        stack.callback(fleet.unlink, "box", "slow")
        yield fleet


@pytest.fixture(autouse=True)
def fast(fleet: Fleet) -> None:
    fleet.link.delay_s = 0.0
    fleet.link.release()


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_hosts_that_answer_are_listed_while_another_is_still_silent(fleet: Fleet) -> None:
    made = {name: fleet.new(name) for name in ("", "box", "slow")}
    fleet.link.hold()
    with fleet.start("ls", "--all", "--json", *LATER) as listing:
        assert listing.stdout
        seen = {
            (row["host"], row["session_id"])
            for row in (json.loads(next(listing.stdout)), json.loads(next(listing.stdout)))
        }
        assert seen == {("", made[""]), ("box", made["box"])}
        assert listing.poll() is None
        fleet.link.release()
        out, err = listing.communicate(timeout=TIMEOUT_S)
    late = [(row["host"], row.get("session_id")) for row in rows(out)]
    assert late == [("slow", made["slow"]), ("gone", None)], err
    assert listing.returncode == 1


def test_a_slow_host_and_a_dead_one_are_named_with_the_reason_and_the_rest_is_listed(
    fleet: Fleet,
) -> None:
    made = {name: fleet.new(name) for name in ("", "box", "slow")}
    fleet.unlink("slow")
    fleet.link.delay_s = FAR_AWAY_S / 2
    done = fleet.tiller("ls", "--all", "--json", *SOON)
    found = rows(done.stdout)
    listed = {(row["host"], row["session_id"]) for row in found if "reason" not in row}
    assert listed >= {("", made[""]), ("box", made["box"])}
    assert "slow" not in {host for host, _ in listed}
    assert {row["host"]: (row["type"], row["reason"]) for row in found if "reason" in row} == {
        "gone": ("host_failed", "unreachable"),
        "slow": ("host_failed", "no_answer"),
    }
    said = done.stderr.splitlines()
    assert said[0].startswith("tiller: gone: ssh can't reach gone: ")
    assert said[1:] == ["tiller: slow: no answer within 3 s; to wait longer, add --within 30s"]
    assert done.returncode == 1


def test_a_list_for_people_has_ids_that_can_be_copied(fleet: Fleet) -> None:
    made = {name: fleet.new(name)[-8:] for name in ("", "box", "slow")}
    done = fleet.tiller("ls", "--all", *LATER)
    lines = done.stdout.splitlines()
    for beginning in (f"     {made['']}", f" box:{made['box']}", f"slow:{made['slow']}"):
        assert any(line.startswith(f"{beginning}  ") for line in lines), done.stdout
    empty = fleet.tiller("ls", "--all", "--failed", *LATER)
    assert empty.stdout == "no session is failed on the hosts that have answered\n"
    own = fleet.tiller("ls", "--all", "-C", ".")
    assert (own.returncode, own.stderr) == (0, "")


async def test_a_request_is_answered_on_the_host_that_has_it(
    fleet: Fleet, workspace: Path, nursery: trio.Nursery
) -> None:
    frontend = await Frontend.connect(fleet.far["box"], nursery)
    steps = [calls(bash(f"touch {name}")) for name in ("one", "two", "three")]
    session_id = await frontend.session(workspace, *steps, always("done"), approve="ask")
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)

    async def tiller(*words: str) -> Done:
        return await trio.to_thread.run_sync(fleet.tiller, *words)

    listed = await tiller("requests", "--all", "--json", *LATER)
    (row,) = [row for row in rows(listed.stdout) if "request" in row]
    assert (row["host"], row["session_id"], row["request"]["id"]) == ("box", session_id, request.id)
    shown = (await tiller("requests", "--all", *LATER)).stdout
    assert re.search(rf"box:{request.id}  \d+ s  session", shown)
    answered = await tiller("answer", "--all", *LATER, request.id[-8:], "once")
    assert answered.returncode == 0, answered.stderr
    assert answered.stdout.startswith("allowed once: ")
    assert answered.stdout.rstrip().endswith(" on box)")
    second = await frontend.request_opened(session_id, 2)
    answered = await tiller("answer", "--all", *LATER, second.id, "once", "--json")
    assert answered.returncode == 0, answered.stderr
    assert json.loads(answered.stdout)["host"] == "box"
    third = await frontend.request_opened(session_id, 3)
    answered = await tiller("answer", f"box:{third.id[-8:]}", "once")
    assert answered.returncode == 0, answered.stderr
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    assert (workspace / "three").exists()
    for words in (("--all", *LATER), ()):
        unknown = await tiller("answer", request.id, "once", *words)
        assert unknown.returncode != 0
    await frontend.close()


def test_a_whole_id_is_found_without_waiting_for_a_host_that_is_silent(fleet: Fleet) -> None:
    session_id = fleet.new("box")
    fleet.link.hold()
    words = ("attach", "--all", "--json", "--until-idle", session_id, *LATER)
    done = fleet.tiller(*words, timeout_s=CONNECT_S - 1)  # then ssh gives up
    assert done.returncode == 0, done.stderr
    assert {row["session_id"] for row in rows(done.stdout)} == {session_id}


def test_every_verb_takes_an_id_with_a_host(fleet: Fleet) -> None:
    session_id = fleet.new("box")
    end = session_id[-8:]
    assert (
        json.loads(fleet.tiller("show", "--json", f"box:{end}").stdout)["snapshot"]["session_id"]
        == session_id
    )
    attached = fleet.tiller("attach", "--until-idle", "--json", "box:last")
    assert {row["session_id"] for row in rows(attached.stdout)} == {session_id}
    assert fleet.tiller("set", f"box:{end}", "title", "Seen from afar").returncode == 0
    archived = fleet.tiller("archive", f"box:{end}")
    assert "Seen from afar" in archived.stdout, archived.stderr
    removed = fleet.tiller("rm", "--yes", f"box:{end}")
    assert removed.returncode == 0, removed.stderr
    missing = fleet.tiller("show", f"box:{end}")
    assert missing.returncode == 2
    assert "see: tiller --host box ls --all" in missing.stderr
    assert fleet.tiller("--host", "box", "ls", "--json").stdout.count(session_id) == 0


def test_ids_of_several_hosts_and_of_unknown_ones_are_misuse(fleet: Fleet) -> None:
    for words, problem in (
        (("rm", "--yes", "box:AAAA", "slow:AAAA"), "these ids are on several hosts"),
        (("rm", "--yes", "box:AAAA", "AAAA"), "these ids are on several hosts"),
        (("--host", "slow", "show", "box:AAAA"), "these ids are on several hosts"),
        (("show", "bx:AAAA"), "there is no host 'bx' in the table [hosts] of"),
        (("show", "box:AA"), "'AA' is too short"),
        (
            ("answer", "--all", *SOON, "AAAAAA", "once"),
            "no host that has answered has any open request whose id",
        ),
    ):
        done = fleet.tiller(*words)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert problem in done.stderr


def test_a_host_that_is_this_machine_is_listed_once(fleet: Fleet) -> None:
    session_id, box = fleet.new("box"), fleet.far["box"]
    box.configure(f'{CONFIG}\n[hosts]\nbox = "box"\n')
    done = fleet.tiller("ls", "--all", "--json", *LATER, at=box)
    assert (done.returncode, done.stdout.count(session_id)) == (0, 1), done.stderr
    fleet.unlink("box", at=box)


def test_each_reason_why_a_host_can_not_be_asked_has_a_name(fleet: Fleet) -> None:
    def told() -> dict[str, str]:
        fleet.unlink("box")
        listed = rows(fleet.tiller("requests", "--all", "--json", *LATER).stdout)
        found = {row["host"]: row for row in listed if "reason" in row}
        assert found["gone"]["reason"] == "unreachable"
        return found["box"]

    program = fleet.far["box"].home / "tiller"
    configuration = fleet.root / "hosts.conf"
    before = configuration.read_text()
    known = fleet.root / "known"
    try:
        program.write_text("#!/bin/sh\nexit 127\n")
        assert told()["reason"] == "no_tiller"
        link_to_tiller(fleet.far["box"].home)
        lines = before.splitlines()
        at = next(i for i, line in enumerate(lines) if "UserKnownHostsFile" in line)
        own = Path(lines[at].split()[1])
        lines[at] = f"  UserKnownHostsFile {known}"
        configuration.write_text("\n".join(lines) + "\n")
        known.write_text("")
        assert told()["message"].startswith("ssh does not know the host key of box yet; connect")
        other = (own.parent / "client.pub").read_text()
        known.write_text(own.read_text().split(" ")[0] + " " + other)
        changed = told()
        assert changed["reason"] == "host_key"
        assert f"has changed (Offending ED25519 key in {known}:1)" in changed["message"]
        configuration.write_text(before)
        fleet.program = ("-c", OTHER_PROTOCOL.format("tiller_client"))
        assert told()["reason"] == "other_protocol"
    finally:
        fleet.program = ("-m", "tiller_client")
        configuration.write_text(before)
        link_to_tiller(fleet.far["box"].home)
