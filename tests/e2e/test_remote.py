"""`tiller --host`: a daemon behind a real OpenSSH server, over links that break."""

import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trio

from e2e.clients import Tillers
from e2e.gates import Gate
from e2e.words import always, bash, calls, text
from support.chat import ChatTerminal
from support.daemon import Daemon
from support.editor import an_editor
from support.pictures import picture
from support.rpc import Rpc
from support.sshd import SshServer, link_to_tiller, running_sshd
from support.watching import assert_all_see_the_same
from tiller_client.connecting.remote import RemoteDaemon
from tiller_protocol.events import TurnEnded
from tiller_protocol.items import UserMessage
from tiller_protocol.places import find_places

CUTS = 10
TIMEOUT_S = 45.0
CHAT_READY = "write a message"

LISTEN = "0A"
"""The state of a listening socket in proc(5)."""

OTHER_PROTOCOL = """\
import runpy
import tiller_protocol
tiller_protocol.PROTOCOL_VERSION = 99
runpy.run_module("{}", run_name="__main__", alter_sys=True)
"""
"""Runs a module as a later release might."""

Done = subprocess.CompletedProcess[str]


class Far:
    """A daemon's home on the other machine, and a home here from which it is used."""

    def __init__(self, daemon: Daemon, server: SshServer, here: Path) -> None:
        self.daemon, self.server, self.here = daemon, server, here
        here.mkdir()
        self.variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(here),
            "TILLER_HOME": str(here / "t"),
            "TILLER_SSH": server.ssh,
            "LANG": "C.UTF-8",
        }

    def start(self, *words: str, host: str = "box") -> "subprocess.Popen[str]":
        command = [sys.executable, "-P", "-m", "tiller_client", "--host", host, *words]
        return subprocess.Popen(
            command,
            env=self.variables,
            cwd=self.here,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def tiller(self, *words: str, host: str = "box") -> Done:
        with self.start(*words, host=host) as process:
            out, err = process.communicate(timeout=TIMEOUT_S)
            return Done(words, process.returncode, out, err)

    @property
    def directory(self) -> Path:
        """The directory to which the sockets are forwarded."""
        local = find_places(self.variables, sys.platform, os.getuid())
        return RemoteDaemon("box", local).places.runtime

    def master(self) -> int:
        """The pid of the master connection; 0 if there is none."""
        words = [*self.server.ssh.split(), "-O", "check", "-S", f"{self.directory}/c", "box"]
        said = subprocess.run(words, capture_output=True, check=False, text=True).stderr
        found = re.search(r"pid=(\d+)", said)
        return int(found[1]) if found else 0

    def cut(self) -> None:
        """Break the link as a dying laptop does, once there is one."""
        while not (pid := self.master()):
            pass
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def far(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """`param` is whether its server forwards sockets: `yes` or `no`."""
    forwarding: str = getattr(request, "param", "yes")
    root = tmp_path_factory.mktemp("f")
    with ExitStack() as stack:
        daemon = Daemon(tmp_path_factory.mktemp("d"))
        link_to_tiller(daemon.home)
        variables = daemon.variables | {"PATH": f"{daemon.home}:{os.environ['PATH']}"}
        server = stack.enter_context(running_sshd(root, variables, forwarding))
        stack.callback(daemon.close)
        far = Far(daemon, server, root / "here")
        stack.callback(far.tiller, "daemon", "stop")
        yield far
        if pid := far.master():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(far.directory, ignore_errors=True)


def session_of(done: Done) -> str:
    found = re.search(r"session (\w{26})", done.stderr)
    assert found, done.stderr
    return found[1]


def test_exec_starts_the_far_daemon_and_works_there(far: Far, workspace: Path) -> None:
    model = far.daemon.script(calls(bash("pwd")), always("done there"))
    done = far.tiller("exec", "-C", str(workspace), "-m", model, "go")
    assert (done.returncode, done.stdout) == (0, "done there\n"), done.stderr
    session = session_of(done)
    listed = [json.loads(line) for line in far.tiller("ls", "--json").stdout.splitlines()]
    assert [(one["session_id"], one["workspace"]) for one in listed] == [(session, str(workspace))]
    status = json.loads(far.tiller("daemon", "status", "--json").stdout)
    assert status["ops_socket"] == str(far.daemon.places.runtime / "ops.sock")
    assert "done there" in far.tiller("show", "last").stdout
    assert far.tiller("exec", "--session", "last", "again").stdout == "done there\n"
    assert stat.S_IMODE(far.directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in far.directory.iterdir()} == {0}
    assert not listening(far.master())
    assert not listening(status["pid"])


def listening(pid: int) -> set[str]:
    """The addresses of TCP at which a process listens."""
    own: set[str] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # just closed
            own.add(str(descriptor.readlink()))
    tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [row.split() for table in tables for row in table.splitlines()[1:]]
    return {row[1] for row in rows if row[3] == LISTEN and f"socket:[{row[9]}]" in own}


def test_without_a_directory_it_is_the_far_home(far: Far) -> None:
    done = far.tiller("new", "--json")
    assert done.returncode == 0, done.stderr
    listed = json.loads(far.tiller("ls", "--json").stdout)
    home = subprocess.run(
        [*far.server.ssh.split(), "box", "cd && pwd"], capture_output=True, check=True, text=True
    ).stdout.strip()
    assert listed["workspace"] == home


NOISE = (
    "echo welcome",
    "echo '{}'",
    'echo \'{"type": "motd"}\'',
    "trap 'echo goodbye' EXIT",
    "cd /",
    "echo warning >&2",
)
"""What start-up files of shells do, though they should not without a terminal."""


@pytest.mark.nightly
def test_a_noisy_start_up_file_there_is_passed_over(far: Far) -> None:
    assert far.tiller("daemon", "start").returncode == 0
    home = str(far.daemon.home)
    for line in NOISE:
        (far.daemon.home / ".bashrc").write_text(f"{line}\n")
        far.cut()
        for _ in ("a new link", "the same link"):
            done = far.tiller("new", "--json")
            assert done.returncode == 0, (line, done.stderr)
            session_id = json.loads(done.stdout)["session_id"]
            listed = [json.loads(each) for each in far.tiller("ls", "--json").stdout.splitlines()]
            places = [one["workspace"] for one in listed if one["session_id"] == session_id]
            assert places == [home], line


def test_a_start_up_file_that_ends_the_shell_is_named(far: Far) -> None:
    (far.daemon.home / ".bashrc").write_text("exit 0\n")
    done = far.tiller("ls")
    assert (done.returncode, done.stdout) == (1, "")
    assert "whether a start-up file of your shell there, such as .bashrc, ends the" in done.stderr
    (far.daemon.home / ".bashrc").unlink()


def test_a_verb_over_a_link_that_is_there_runs_one_short_command(far: Far) -> None:
    assert far.tiller("ls").returncode == 0
    log = far.server.root / "commands"
    (far.daemon.home / ".bashrc").write_text(f'echo "$BASH_EXECUTION_STRING" >> {log}\n')
    assert far.tiller("ls").returncode == 0
    commands = log.read_text().splitlines()
    assert len(commands) == 1
    assert commands[0].endswith(f"cat {far.daemon.places.runtime / 'token'}")


@pytest.mark.nightly
def test_ten_cuts_during_a_turn_lose_and_double_nothing(far: Far, workspace: Path) -> None:
    gates = [Gate(workspace, f"gate{number}") for number in range(CUTS)]
    steps = [
        calls(bash(f"echo {number} >> effects; {gate.command}"))
        for number, gate in enumerate(gates)
    ]
    model = far.daemon.script(*steps, always("the end"))
    assert far.tiller("daemon", "start").returncode == 0
    followed = far.start(
        "exec", "--json", "--approve", "always", "-C", str(workspace), "-m", model, "go"
    )
    for gate in gates:
        with gate.path.open("w"):
            far.cut()
    out, err = followed.communicate(timeout=TIMEOUT_S)
    assert followed.returncode == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    effects = (workspace / "effects").read_text().split()
    assert effects == [str(number) for number in range(CUTS)]
    log = far.tiller("log", "--json", events[0]["session_id"]).stdout.splitlines()
    ids = [json.loads(line)["seq"] for line in log]
    assert ids == sorted(set(ids))


@pytest.mark.nightly
def test_every_submission_takes_effect_once_however_often_the_link_breaks(
    far: Far, workspace: Path
) -> None:
    session = json.loads(far.tiller("new", "-C", str(workspace), "--json").stdout)["session_id"]
    for number in range(CUTS):
        sent = far.start("send", "--no-reply", session, f"message {number}")
        if pid := far.master():
            os.kill(pid, signal.SIGKILL)
        _, err = sent.communicate(timeout=TIMEOUT_S)
        if sent.returncode:  # it was cut before it was linked, and says so
            assert "ssh can't reach box" in err
            assert far.tiller("send", "--no-reply", session, f"message {number}").returncode == 0
    shown = far.tiller("show", session).stdout
    assert [shown.count(f"message {number}\n") for number in range(CUTS)] == [1] * CUTS


@pytest.mark.nightly
async def test_attach_rpc_and_acp_lose_nothing_over_a_link_that_breaks(
    far: Far, workspace: Path, nursery: trio.Nursery, tillers: Tillers
) -> None:
    gates = [Gate(workspace, f"gate{number}") for number in range(CUTS)]
    model = far.daemon.script(*(calls(bash(gate.command)) for gate in gates), text("the end"))
    assert far.tiller("daemon", "start").returncode == 0
    rpc = await Rpc.start(far, before=("--host", "box"))
    async with an_editor(far, nursery, before=("--host", "box")) as editor:
        session_id = await rpc.session(workspace, model)
        await rpc.send({"follow": session_id})
        attached = await tillers(far, "--host", "box", "attach", "--json", session_id)
        opened = {"sessionId": session_id, "cwd": str(workspace), "mcpServers": []}
        await editor.ask("session/load", **opened)
        prompt = [{"type": "text", "text": "go"}]
        asked = await editor.request("session/prompt", sessionId=session_id, prompt=prompt)
        await attached.until(1)
        for gate in gates:
            await gate.reached()
            await trio.to_thread.run_sync(far.cut)
            gate.open("passed")
        assert (await editor.answer(asked))["stopReason"] == "end_turn"
        events = await assert_all_see_the_same(session_id, attached, rpc, editor, typed=("go",))
    assert sum(event["body"]["type"] == "turn_started" for event in events) == 1
    await rpc.close()


@pytest.mark.nightly
async def test_the_daemon_that_is_replaced_there_is_found_again(
    far: Far, workspace: Path, tillers: Tillers
) -> None:
    gate = Gate(workspace)
    model = far.daemon.script(calls(bash(gate.command)), always("said by the next one"))
    assert far.tiller("daemon", "start").returncode == 0
    new = ("new", "--json", "--approve", "always", "-C", str(workspace), "-m", model)
    session_id = json.loads(far.tiller(*new).stdout)["session_id"]
    attached = await tillers(far, "--host", "box", "attach", "--json", session_id)
    assert far.tiller("send", session_id, "go").returncode == 0
    await gate.reached()
    first = json.loads(far.tiller("daemon", "status", "--json").stdout)["pid"]
    assert far.tiller("daemon", "restart", "--yes").returncode == 0
    gate.close()
    assert json.loads(far.tiller("daemon", "status", "--json").stdout)["pid"] != first
    done = far.tiller("exec", "--session", session_id, "again")
    assert (done.returncode, done.stdout) == (0, "said by the next one\n"), done.stderr
    log = far.tiller("log", "--json", session_id).stdout.splitlines()
    await attached.until(json.loads(log[-1])["seq"])
    bodies = [event.body for event in attached.seen]
    assert [event.seq for event in attached.seen] == list(range(1, len(bodies) + 1))
    ended = [body.outcome for body in bodies if isinstance(body, TurnEnded)]
    assert ended == ["interrupted", "completed"]


def test_a_far_daemon_of_another_protocol_is_refused_with_what_to_do(far: Far) -> None:
    far.daemon.program = ("-c", OTHER_PROTOCOL.format("tiller_daemon"))
    far.daemon.start()
    command = shlex.join([sys.executable, "-P", "-c", OTHER_PROTOCOL.format("tiller_client")])
    (far.daemon.home / "tiller").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    for words in (("ls",), ("rpc",), ("exec", "hi")):
        done = far.tiller(*words)
        assert (done.returncode, done.stdout) == (1, "")
        assert (
            "this tiller speaks protocol 1, but the running daemon speaks another; install the "
            "same version on both machines, then run: tiller --host box daemon restart"
        ) in done.stderr


@pytest.mark.nightly
def test_a_far_daemon_that_is_silent_is_named_with_its_own_log(far: Far, workspace: Path) -> None:
    gate = Gate(workspace)
    model = far.daemon.script(calls(bash(gate.command)), always("after all"))
    with far.start("exec", "-C", str(workspace), "-m", model, "go") as process:
        with gate.path.open("w"):
            pid: int = json.loads(far.tiller("daemon", "status", "--json").stdout)["pid"]
            os.kill(pid, signal.SIGSTOP)
            try:
                assert process.stderr
                said = next(line for line in process.stderr if "has not answered" in line)
            finally:
                os.kill(pid, signal.SIGCONT)
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert "see its log: tiller --host box daemon logs; if it hangs: tiller --host box" in said
    assert (process.returncode, out) == (0, "after all\n")


def test_what_ssh_says_is_passed_on_as_a_sentence(far: Far) -> None:
    done = far.tiller("ls", host="gone")
    assert done.returncode == 1
    assert "tiller: ssh can't reach gone: " in done.stderr
    assert "Connection refused" in done.stderr
    (far.daemon.home / "tiller").write_text("#!/bin/sh\nexit 127\n")
    done = far.tiller("ls")
    assert done.returncode == 1
    assert "tiller was not found on box" in done.stderr
    (far.daemon.home / "tiller").write_text('#!/bin/sh\necho \'{"type": "not_running"}\'\n')
    done = far.tiller("ls")
    assert "too old for --host" in done.stderr
    link_to_tiller(far.daemon.home)


@pytest.mark.parametrize("words", [("--host",), ("--host=", "ls"), ("--host", "-oProxyCommand=x")])
def test_a_host_that_is_none_is_misuse(tmp_path: Path, words: tuple[str, ...]) -> None:
    command = [sys.executable, "-P", "-m", "tiller_client", *words]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 2
    assert "--host USER@BOX" in done.stderr


def test_a_command_for_ssh_with_an_open_quote_is_misuse(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "TILLER_HOME": str(tmp_path / "t"), "TILLER_SSH": "ssh 'x"}
    command = [sys.executable, "-P", "-m", "tiller_client", "--host", "box", "ls"]
    done = subprocess.run(
        command, env=os.environ | home, capture_output=True, check=False, text=True
    )
    assert done.returncode == 2
    assert "the variable TILLER_SSH does not hold a valid command" in done.stderr


@pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh: apt install openssh-client")
def test_a_link_that_is_silent_is_given_up_after_fifteen_seconds(tmp_path: Path) -> None:
    ssh, told = tmp_path / "ssh", tmp_path / "told"
    ssh.write_text(f'#!/bin/sh\nssh -G "$@" >> {told}\nexit 255\n')
    ssh.chmod(0o700)
    home = {"HOME": str(tmp_path), "TILLER_HOME": str(tmp_path / "t"), "TILLER_SSH": str(ssh)}
    command = [sys.executable, "-P", "-m", "tiller_client", "--host", "box", "ls"]
    done = subprocess.run(command, env=os.environ | home, capture_output=True, check=False)
    assert done.returncode == 1
    lines = [line.partition(" ") for line in told.read_text().splitlines()]
    settings = {name: value for name, _, value in lines}
    assert int(settings["serveraliveinterval"]) * int(settings["serveralivecountmax"]) == 15


@pytest.mark.parametrize("far", ["no"], indirect=True)
def test_a_server_that_forbids_forwarding_is_named(far: Far) -> None:
    done = far.tiller("ls")
    assert done.returncode == 1
    assert "AllowStreamLocalForwarding" in done.stderr


def test_an_image_is_read_here_and_a_file_is_named_there(far: Far) -> None:
    (far.here / "shot.png").write_bytes(picture())
    (far.daemon.home / "there.txt").write_text("x")
    model = far.daemon.script(always("seen"))
    there = str(far.daemon.home)
    done = far.tiller(
        *("exec", "-C", there, "-m", model, "--image", "shot.png"),
        *("--file", f"{there}/there.txt", "look"),
    )
    assert (done.returncode, done.stdout) == (0, "seen\n"), done.stderr
    (request,) = far.daemon.requests(session_of(done))
    (message,) = [item for item in request.items if isinstance(item, UserMessage)]
    assert [image.data for image in message.images] == [picture()]
    assert message.files == ("there.txt",)


def test_a_verb_that_needs_no_daemon_is_for_this_machine(far: Far) -> None:
    done = far.tiller("schema")
    assert done.returncode == 2
    assert "works only on this machine" in done.stderr


@pytest.mark.nightly
async def test_a_chat_with_another_machine_goes_on_when_its_link_was_cut(
    far: Far, workspace: Path
) -> None:
    gates = [Gate(workspace, "one"), Gate(workspace, "two")]
    steps = [calls(bash(gate.command)) for gate in gates]
    model = far.daemon.script(*steps, text("Back again."), text("And on."))
    words = ("chat", "-C", str(workspace), "-m", model, "--approve", "always")
    chat = ChatTerminal.start(far, "--host", "box", *words)
    try:
        await chat.shows(CHAT_READY)
        chat.press("go\r")
        for gate in gates:
            await gate.reached()
            await chat.shows(f"bash {gate.command} running")
            far.cut()
            chat.press("half a sentence ")
            gate.open("through")
        await chat.shows("Back again.", "half a sentence half a sentence")
        assert chat.text.count("Back again.") == chat.text.count("» go") == 1
        chat.press("\r")
        await chat.shows("» half a sentence half a sentence", "And on.", CHAT_READY)
        chat.press("\x04")
        assert await chat.end() == 0
    finally:
        chat.close()
