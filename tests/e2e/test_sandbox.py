"""The sandbox for commands in a real daemon: what tries to get out, and what may run outside."""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from e2e.gates import Gate
from e2e.words import bash, calls, text
from support.daemon import CONFIG, START_S, Daemon, gone, leftovers
from support.frontend import Frontend
from support.jail import PYTHON
from tiller_daemon.sandbox.detect import bubblewrap_program, find_sandbox, try_out_landlock
from tiller_protocol.answers import CatalogResult, RevertResult, SessionListResult
from tiller_protocol.events import Event, ItemDelta, TurnStarted
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import Answer, Catalog, Interrupt, Revert, SessionList, Shell
from tiller_protocol.places import ENVIRONMENT_FILE, OPS_SOCKET, TOKEN_FILE
from tiller_protocol.settings import Rule

DRIVE = """
import sys, pynng
from tiller_protocol.codec import encode_submission, decode_answer
from tiller_protocol.ops import SessionCreate, Submission
socket, token, workspace, number = sys.argv[1:]
one = pynng.Req0(dial="ipc://" + socket, block_on_dial=True, send_timeout=2000, recv_timeout=2000)
op = SessionCreate(workspace)
one.send(encode_submission(Submission("01ARZ3NDEKTSV4RRFFQ69G5FA" + number, op, "thief", token)))
print(decode_answer(one.recv()))
"""

OUT = Path(f"/etc/tiller-test-of-the-sandbox-{os.getpid()}")
"""A file that no command may make; an ordinary user can't make it in any case."""

DEFAULT = CONFIG.replace('sandbox = { mode = "full_access" }\n', "")

needs_sandbox = pytest.mark.skipif(
    find_sandbox(sys.platform).sandbox is None, reason=find_sandbox(sys.platform).problem
)

NewDaemon = Callable[..., Daemon]


@pytest.fixture(scope="module")
def confining(tmp_path_factory: pytest.TempPathFactory) -> Generator[Daemon]:
    """A daemon whose configuration does not mention the sandbox."""
    with Daemon(tmp_path_factory.mktemp("d"), DEFAULT) as daemon:
        yield daemon


@pytest.fixture
async def confined(
    confining: Daemon, nursery: trio.Nursery
) -> AsyncGenerator[tuple[Daemon, Frontend]]:
    """The daemon that confines commands, and a frontend."""
    frontend = await Frontend.connect(confining, nursery)
    yield confining, frontend
    await frontend.close()


async def run(frontend: Frontend, workspace: Path, *commands: str, **settings: Any) -> ToolCall:
    """Run commands in one turn; return the last call."""
    steps = [calls(bash(command)) for command in commands]
    session_id = await frontend.session(workspace, *steps, text("done"), **settings)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    return frontend.completed_calls(session_id)[-1]


def read(path: Path) -> str | None:
    """Return the content of a file; None if it does not exist."""
    return path.read_text() if path.exists() else None


def drive(daemon: Daemon, workspace: Path, number: int) -> str:
    """Return a command that drives the daemon with the daemon's stolen token."""
    token = (daemon.places.runtime / TOKEN_FILE).read_text()
    script = workspace / "drive.py"
    script.write_text(DRIVE)
    socket = daemon.places.runtime / OPS_SOCKET
    return f"{sys.executable} drive.py {socket} {token} {workspace} {number}"


async def sessions(frontend: Frontend) -> int:
    found = await frontend.must(SessionList())
    assert isinstance(found, SessionListResult)
    return len(found.sessions)


@pytest.mark.skipif(bubblewrap_program() is None, reason="no bubblewrap")
@pytest.mark.promise("B55", "B60")
async def test_a_revert_puts_nothing_back_that_was_put_aside_as_programs_would_execute_it(
    confined: tuple[Daemon, Frontend], workspace: Path
) -> None:
    _, frontend = confined
    gates = {name: Gate(workspace, name) for name in ("plant", "build")}
    (workspace / "Makefile").write_text(
        "plant-it:\n\tmkdir .vscode; echo {} >.vscode/tasks.json; echo {} >opencode.json\n"
        "\tcat plant\n"
        "build-it:\n\techo 1 >built; cat build; echo 2 >later\n"
    )
    session_ids = {
        name: await frontend.session(workspace, calls(bash(f"make {name}-it")), text("done"))
        for name in gates
    }
    for name, gate in gates.items():
        await frontend.say(session_ids[name])
        await gate.reached()
    for name, gate in gates.items():
        gate.open()
        await frontend.turn_ended(session_ids[name])
    started = await frontend.until_body(session_ids["build"], TurnStarted)
    result = await frontend.must(Revert(session_ids["build"], started.turn_id or ""))
    assert isinstance(result, RevertResult)
    assert set(result.conflicts) >= {".vscode/tasks.json", "opencode.json"}
    assert not (workspace / ".vscode").exists()
    assert not (workspace / "opencode.json").exists()
    assert (workspace / "opencode.json.disabled").read_text() == "{}\n"
    assert not (workspace / "later").exists()


@needs_sandbox
@pytest.mark.promise("B60", "T1")
async def test_a_command_can_not_drive_the_daemon_though_it_has_the_token(
    confined: tuple[Daemon, Frontend], workspace: Path
) -> None:
    await no_command_drives(*confined, workspace)


async def no_command_drives(daemon: Daemon, frontend: Frontend, workspace: Path) -> None:
    """Check that a command drives the daemon neither with a stolen token nor with the client."""
    before = await sessions(frontend)
    call = await run(frontend, workspace, drive(daemon, workspace, 1))
    assert call.exit_status, call.output
    assert await sessions(frontend) == before + 1
    runtime, state = daemon.places.runtime, daemon.places.state
    call = await run(frontend, workspace, f"ls -A {runtime} {state}; cat {runtime}/{TOKEN_FILE}")
    assert OPS_SOCKET not in call.output
    assert "tiller.db" not in call.output
    home = daemon.variables["TILLER_HOME"]
    client = f"TILLER_HOME={home} {sys.executable} -m tiller_client new"
    assert (await run(frontend, workspace, client)).exit_status
    assert await sessions(frontend) == before + 3


@needs_sandbox
async def test_a_command_can_not_read_the_keys_of_a_service(
    confined: tuple[Daemon, Frontend], workspace: Path
) -> None:
    daemon, frontend = confined
    keys = daemon.places.config / ENVIRONMENT_FILE
    keys.write_text("OPENAI_API_KEY=sk-of-the-service\n")
    call = await run(frontend, workspace, f"cat {keys}")
    assert "sk-of" not in call.output


@needs_sandbox
async def test_a_rule_for_the_repository_holds_in_a_session_below_its_top(
    new_daemon: NewDaemon, nursery: trio.Nursery, workspace: Path
) -> None:
    rule = '[[permissions]]\npermission = "read"\npattern = "secrets/*"\naction = "deny"\n'
    daemon = new_daemon(DEFAULT + rule)
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    place = workspace / "packages" / "app"
    for path in (place / "own", workspace / "secrets" / "key", workspace / "shared"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"the content of {path.name}\n")
    await trio.run_process(["git", "init", "-q", str(workspace)])
    call = await run(frontend, place, "cat ../../shared; cat ../../sec*/key; cat own")
    assert "the content of shared" in call.output
    assert "the content of own" in call.output
    assert "the content of key" not in call.output
    await frontend.close()


async def test_the_same_command_does_drive_the_daemon_outside_of_a_sandbox(
    frontend: Frontend, daemon: Daemon, workspace: Path
) -> None:
    before = await sessions(frontend)
    call = await run(frontend, workspace, drive(daemon, workspace, 2))
    assert call.exit_status == 0, call.output
    assert await sessions(frontend) == before + 2


@needs_sandbox
@pytest.mark.parametrize("way", [{}, {"pty": True}, {"background": True}])
async def test_by_default_a_command_writes_in_the_workspace_alone(
    confined: tuple[Daemon, Frontend], workspace: Path, way: dict[str, Any]
) -> None:
    frontend = confined[1]
    command = f"echo in > inside; echo x > .git/hooks/a; touch {OUT}; touch .tiller/config.toml"
    session_id = await frontend.session(workspace, calls(bash(command, **way)), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert call.output.count("Read-only file system") >= 2, call.output
    assert read(workspace / "inside") == "in\n"
    assert read(OUT) is None
    assert read(workspace / ".git" / "hooks" / "a") is None
    assert read(workspace / ".tiller") is None
    assert "It ran in a sandbox" in call.output


@needs_sandbox
async def test_git_works_in_the_sandbox(confined: tuple[Daemon, Frontend], workspace: Path) -> None:
    command = "git add -A && git -c user.name=t -c user.email=t@t commit -qm x && git log --oneline"
    call = await run(confined[1], workspace, f"echo new > new && {command}")
    assert call.exit_status == 0, call.output
    assert len(call.output.splitlines()) == 2


@needs_sandbox
async def test_an_approved_command_can_not_see_files_that_rules_deny(
    confined: tuple[Daemon, Frontend], workspace: Path
) -> None:
    """The command can see files about which rules only ask."""
    for name in ("plans.txt", ".env"):
        (workspace / name).write_text(f"the content of {name}")
    # The line does not spell out the names, so that no rule stops the line before it runs.
    program = "import os; os.system('cat .e* pl*')"
    denied = {"permission": "read", "pattern": "plans.txt", "action": "deny"}
    command = f'{PYTHON} -c "{program}"'
    call = await run(confined[1], workspace, command, permissions=[denied])
    assert "the content of .env" in call.output
    assert "the content of plans.txt" not in call.output


@needs_sandbox
async def test_what_was_cut_out_of_an_output_can_be_read_by_a_later_command(
    confined: tuple[Daemon, Frontend], workspace: Path
) -> None:
    daemon, frontend = confined
    spills = f"cat {daemon.places.state}/spill/*/*.txt | tail -1"
    call = await run(frontend, workspace, "seq 100000", spills)
    assert call.output == "100000\n"


@needs_sandbox
async def test_the_users_own_command_and_what_a_rule_lets_out_run_outside(
    confined: tuple[Daemon, Frontend], workspace: Path
) -> None:
    daemon, frontend = confined
    look = f"test -S {daemon.places.runtime}/{OPS_SOCKET}"
    assert (await run(frontend, workspace, look)).exit_status == 1
    rules = [{"permission": "unsandboxed", "pattern": "test -S *", "action": "allow"}]
    run_it = f"env -i {look}"
    assert (await run(frontend, workspace, run_it, permissions=rules)).exit_status == 1
    assert (await run(frontend, workspace, look, permissions=rules)).exit_status == 0
    session_id = await frontend.session(workspace, text("done"))
    await frontend.must(Shell(session_id, look))
    await frontend.turn_ended(session_id)
    assert frontend.completed_calls(session_id)[0].exit_status == 0


SECONDS = str(100_000 + os.getpid())
"""How long the sleepers sleep. The number distinguishes them from other tests' sleepers."""

STUBBORN = f"""
(trap '' TERM; exec sleep {SECONDS}) &
setsid env -i sleep {SECONDS} &
(setsid sh -c 'trap "" TERM; exec sleep {SECONDS}' &)
echo ready; sleep {SECONDS}
"""


def is_ready(event: Event) -> bool:
    """Whether the command has printed that the sleepers are ready."""
    return isinstance(event.body, ItemDelta) and event.body.channel == "output"


@needs_sandbox
@pytest.mark.promise("B23")
async def test_an_interrupt_leaves_nothing_alive_in_a_sandbox(
    confined: tuple[Daemon, Frontend], workspace: Path
) -> None:
    await nothing_outlives_an_interrupt(confined[1], workspace)


async def nothing_outlives_an_interrupt(frontend: Frontend, workspace: Path) -> None:
    """Check that an interrupt ends all processes, even those that resist."""
    session_id = await frontend.session(workspace, calls(bash(STUBBORN)), text("done"))
    await frontend.say(session_id)
    await frontend.until(session_id, is_ready)
    await _all_sleep()
    await frontend.must(Interrupt(session_id))
    await frontend.turn_ended(session_id)
    assert not _sleepers()


@needs_sandbox
@pytest.mark.promise("G8")
async def test_a_killed_daemon_leaves_nothing_alive_in_a_sandbox(
    confined: tuple[Daemon, Frontend], workspace: Path
) -> None:
    daemon, frontend = confined
    session_id = await frontend.session(workspace, calls(bash(STUBBORN)), text("done"))
    await frontend.say(session_id)
    await frontend.until(session_id, is_ready)
    sleepers = await _all_sleep()
    await frontend.disconnect()
    daemon.kill9()
    assert all(gone(pid, timeout_s=5.0) for pid in sleepers)
    assert not leftovers(daemon.log_ids, timeout_s=5.0)
    daemon.start()
    await frontend.reconnect()


async def _all_sleep() -> set[int]:
    """Wait until all four processes have become `sleep`, which may take long on a busy machine."""
    with trio.fail_after(START_S):
        while len(found := _sleepers()) < 4:  # noqa: ASYNC110 - nothing reports an exec
            await trio.sleep(0.01)
    return found


def _sleepers() -> set[int]:
    wanted, found = f"sleep\0{SECONDS}\0".encode(), set[int]()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == wanted:
                found.add(int(entry.name))
        except OSError:
            continue
    return found


NO_LANDLOCK = """
import ctypes, os, struct, sys
refuse = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x50026), (0x06, 0, 0, 0x7fff0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in refuse))
filters = struct.pack("@HP", len(refuse), ctypes.addressof(program))
libc = ctypes.CDLL(None)
libc.prctl(38, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3)
if libc.prctl(22, ctypes.c_ulong(2), ctypes.c_char_p(filters), *[ctypes.c_ulong(0)] * 2):
    sys.exit("no filter")
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a program for which the kernel seems to have no Landlock."""


def no_bubblewrap(daemon: Daemon) -> str:
    """Return a PATH for a daemon, with which bubblewrap does not work."""
    program = daemon.home / ".local" / "bin" / "bwrap"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'No permissions to make a namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    return f"{program.parent}:{daemon.variables['PATH']}"


@pytest.fixture(scope="module")
def landlocking(tmp_path_factory: pytest.TempPathFactory) -> Generator[Daemon]:
    """A daemon on a system that allows no namespaces."""
    if problem := try_out_landlock().problem:
        pytest.skip(problem)
    daemon = Daemon(tmp_path_factory.mktemp("d"), DEFAULT)
    with closing(daemon):
        daemon.start(PATH=no_bubblewrap(daemon))
        yield daemon


@pytest.fixture
async def landlocked(
    landlocking: Daemon, nursery: trio.Nursery
) -> AsyncGenerator[tuple[Daemon, Frontend]]:
    """The daemon that has Landlock alone, and a frontend."""
    frontend = await Frontend.connect(landlocking, nursery)
    yield landlocking, frontend
    await frontend.close()


@pytest.mark.promise("B60", "T1")
async def test_landlock_keeps_a_command_from_driving_the_daemon_though_it_has_the_token(
    landlocked: tuple[Daemon, Frontend], workspace: Path
) -> None:
    await no_command_drives(*landlocked, workspace)


@pytest.mark.parametrize("way", [{}, {"pty": True}])
async def test_landlock_holds_what_only_reads_and_asks_about_anything_else(
    landlocked: tuple[Daemon, Frontend], workspace: Path, way: dict[str, Any]
) -> None:
    frontend = landlocked[1]
    command = f"echo in > inside; echo x > .git/hooks/a; touch {OUT}"
    session_id = await frontend.session(workspace, calls(bash(command, **way)), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert "Permission denied" in call.output, call.output
    assert read(workspace / "inside") == "in\n"
    assert read(OUT) is None
    assert "It ran in a sandbox" in call.output
    for command, kind in (("ls > x", "denied"), ("touch x", "denied"), ("cat greeting.txt", None)):
        assert (await run(frontend, workspace, command, approve="never")).error_kind == kind
    assert read(workspace / "x") is None


async def test_by_landlock_no_command_runs_on_without_a_question(
    landlocked: tuple[Daemon, Frontend], workspace: Path
) -> None:
    frontend = landlocked[1]
    session_id = await frontend.session(
        workspace, calls(bash("echo x > y", background=True)), text("done"), approve="ask",
        permissions=[{"permission": "bash", "pattern": "*", "action": "allow"}],
    )  # fmt: skip
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    assert (request.permission, request.subjects) == ("unsandboxed", ("echo x > y",))
    await frontend.must(Answer(request.id, "reject"))
    await frontend.turn_ended(session_id)
    said = await doctor(frontend)
    assert "warn  sandbox        workspace_write, no network, by landlock. Bubblewrap" in said
    assert "Every command that does more than read needs approval" in said


WRITES_AFTER_ALL = (
    "git config core.fsmonitor 'touch ran'", "git config --local a.b c",
    "awk 'BEGIN{print > \"x\"}'",
    "sort -o x greeting.txt", "find . -name greeting.txt -fprint x", "git log --output=x",
    "git diff --output=x HEAD", "git branch x", "git tag x",
    "git symbolic-ref HEAD refs/heads/x",
    "git diff --no-index --output=x greeting.txt /dev/null", "sed -n 'w x' greeting.txt",
)  # fmt: skip
"""Lines whose beginning a rule may allow because such lines usually read."""


async def test_by_landlock_a_rule_for_a_command_that_reads_does_not_let_it_write(
    landlocked: tuple[Daemon, Frontend], workspace: Path
) -> None:
    frontend, before = landlocked[1], read(workspace / ".git" / "config")
    allowed = [
        {"permission": "bash", "pattern": f"{name} *", "action": "allow"}
        for name in ("git", "awk", "sort", "find", "sed")
    ]
    for line in WRITES_AFTER_ALL:
        await run(frontend, workspace, line, approve="never", permissions=allowed)
    assert read(workspace / "x") is None
    assert read(workspace / ".git" / "config") == before
    assert not list((workspace / ".git" / "refs").rglob("x"))
    session_id = await frontend.session(
        workspace, calls(bash(WRITES_AFTER_ALL[3])), text("done"), approve="ask",
        permissions=allowed,
    )  # fmt: skip
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    assert (request.permission, request.subjects) == ("unsandboxed", (WRITES_AFTER_ALL[3],))
    await frontend.must(Answer(request.id, "once"))
    await frontend.turn_ended(session_id)
    assert read(workspace / "x")


@pytest.mark.promise("B23")
async def test_an_interrupt_leaves_nothing_alive_under_landlock(
    landlocked: tuple[Daemon, Frontend], workspace: Path
) -> None:
    await nothing_outlives_an_interrupt(landlocked[1], workspace)


@pytest.fixture
async def without(new_daemon: NewDaemon, nursery: trio.Nursery) -> AsyncGenerator[Frontend]:
    """A daemon on a system where no sandbox works."""
    daemon = new_daemon(DEFAULT)
    daemon.prefix = (sys.executable, "-c", NO_LANDLOCK)
    daemon.start(PATH=no_bubblewrap(daemon))
    frontend = await Frontend.connect(daemon, nursery)
    yield frontend
    await frontend.close()


@pytest.mark.skipif(sys.platform != "linux", reason="they are for Linux")
async def test_without_a_sandbox_each_command_that_acts_is_asked_about_and_it_is_said(
    without: Frontend, workspace: Path
) -> None:
    rules = [{"permission": "bash", "pattern": "*", "action": "allow"}]
    session_id = await without.session(
        workspace, calls(bash("cat greeting.txt")), calls(bash("touch x")), text("done"),
        approve="ask", permissions=rules,
    )  # fmt: skip
    await without.say(session_id)
    for number, command in enumerate(("cat greeting.txt", "touch x"), 1):
        request = await without.request_opened(session_id, number)
        assert (request.permission, request.subjects) == ("unsandboxed", (command,))
        await without.must(Answer(request.id, "once"))
    await without.turn_ended(session_id)
    assert (workspace / "x").exists()
    told = [e for e in without.events(session_id) if "No permissions to make a name" in str(e.body)]
    assert len(told) == 1
    catalog = await without.must(Catalog())
    assert isinstance(catalog, CatalogResult)
    assert catalog.sandbox
    assert "No permissions" in catalog.sandbox.problem
    assert "warn  sandbox        none, so every command needs approval" in await doctor(without)


@needs_sandbox
async def test_doctor_says_what_holds_commands(confined: tuple[Daemon, Frontend]) -> None:
    assert "ok    sandbox        workspace_write, no network, by" in await doctor(confined[1])


async def sandbox(variables: dict[str, str], place: Path, *words: str) -> tuple[int, str]:
    """Run `tiller sandbox` in a directory; return its exit status and its output."""
    done = await trio.run_process(
        [sys.executable, "-m", "tiller_client", "sandbox", *words],
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
        cwd=place,
        env=variables,
    )
    return done.returncode, done.stdout.decode()


@needs_sandbox
async def test_one_command_can_be_tried_in_the_sandbox_without_a_daemon(
    new_daemon: NewDaemon, workspace: Path
) -> None:
    daemon = new_daemon(DEFAULT)
    daemon.places.runtime.mkdir(parents=True)
    (daemon.places.runtime / TOKEN_FILE).write_text("stolen")
    variables = daemon.variables | {"FAKE_API_KEY": "abcdefghijk"}
    script = f"echo x >in; touch {OUT}; cat {daemon.places.runtime}/*; env; exit 7"
    status, said = await sandbox(variables, workspace, "--", "sh", "-c", script)
    assert (status, read(workspace / "in")) == (7, "x\n")
    assert "Read-only file system" in said
    assert "stolen" not in said
    assert "FAKE_API_KEY" not in said
    assert "TILLER_HOME" not in said
    reads = ("-C", str(workspace), "--sandbox", "read_only", "--", "touch", "in2")
    assert (await sandbox(variables, Path("/"), *reads))[0] == 1
    assert read(workspace / "in2") is None


@needs_sandbox
async def test_a_command_that_can_not_run_has_the_exit_status_of_a_shell(
    new_daemon: NewDaemon, workspace: Path
) -> None:
    variables = new_daemon(DEFAULT).variables
    assert await sandbox(variables, workspace, "--", "nosuch") == (
        127,
        "tiller: nosuch was not found\n",
    )
    (workspace / "plain").write_text("text")
    status, said = await sandbox(variables, workspace, "--", "./plain")
    assert (status, said) == (126, "tiller: ./plain is not executable\n")
    assert (await sandbox(variables, workspace, "--", "./nosuch"))[0] == 127


async def test_without_a_command_it_is_said_what_would_hold_one(
    new_daemon: NewDaemon, workspace: Path
) -> None:
    daemon = new_daemon(DEFAULT)
    variables = daemon.variables | {"PATH": no_bubblewrap(daemon)}
    status, said = await sandbox(variables, workspace)
    if try_out_landlock().sandbox:
        assert "by landlock. Bubblewrap does not work here: No permissions" in said
        assert "can also write to `.git`" in said
    assert status == ("landlock" not in said.split(".")[0])
    status, said = await sandbox(variables, workspace, "--sandbox", "full_access", "--", "ls")
    assert (status, said) == (
        1,
        "tillerd: with full_access there is no sandbox: commands can do all that you can\n",
    )


async def doctor(frontend: Frontend) -> str:
    """Return the output of `tiller doctor`."""
    done = await trio.run_process(
        [sys.executable, "-m", "tiller_client", "doctor"],
        capture_stdout=True,
        check=False,
        env=frontend.daemon.variables,
    )
    return done.stdout.decode()


@needs_sandbox
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
async def test_builds_are_not_asked_about_unless_a_rule_for_the_sandbox_says_so(
    confined: tuple[Daemon, Frontend], workspace: Path
) -> None:
    frontend = confined[1]
    (workspace / "Makefile").write_text("test:\n\techo built > product\n")
    session_id = await frontend.session(
        workspace, calls(bash("make test")), text("done"), approve="ask"
    )
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    assert read(workspace / "product") == "built\n"
    asking = (Rule("sandboxed", "*", "ask"),)
    session_id = await frontend.session(
        workspace, calls(bash("make test")), text("done"), approve="ask", permissions=asking
    )
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    assert (request.permission, request.subjects) == ("bash", ("make test",))
    await frontend.must(Answer(request.id, "once"))
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
