"""Escalation: a command stopped by its level runs again in a looser one if the user agrees."""

import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

import pytest
import trio

from e2e.gates import Gate
from e2e.test_sandbox import DEFAULT, needs_sandbox, read
from e2e.words import bash, calls, text
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_protocol.events import RequestOpened, WarningRaised
from tiller_protocol.items import Request
from tiller_protocol.ops import Answer, Interrupt, UserInput

HELD_BACK = "echo x > .vscode/a"
"""A command that every sandbox stops, and that an ordinary user can run."""

DENIED = {"permission": "unsandboxed", "pattern": "*", "action": "deny"}
ALLOWED = ({"permission": "bash", "pattern": "*", "action": "allow"},)

pytestmark = needs_sandbox


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[Daemon]:
    """A daemon with its own choice of sandbox."""
    with Daemon(tmp_path_factory.mktemp("d"), DEFAULT) as daemon:
        yield daemon


@pytest.fixture
def hook(workspace: Path) -> Path:
    """The file that `HELD_BACK` makes."""
    (workspace / ".vscode").mkdir()
    return workspace / ".vscode" / "a"


async def begin(frontend: Frontend, workspace: Path, *commands: str, **settings: object) -> str:
    """Start a turn that runs commands which a rule allows; return the session."""
    steps = [calls(bash(command)) for command in commands]
    given: dict[str, Any] = {"approve": "ask", "permissions": ALLOWED, **settings}
    session_id = await frontend.session(workspace, *steps, text("done"), **given)
    await frontend.say(session_id)
    return session_id


def asked(frontend: Frontend, session_id: str) -> list[Request]:
    """All requests of a session."""
    bodies = [event.body for event in frontend.events(session_id)]
    return [body.request for body in bodies if isinstance(body, RequestOpened)]


async def test_what_the_sandbox_held_back_runs_outside_once_the_user_says_so(
    frontend: Frontend, workspace: Path, hook: Path
) -> None:
    session_id = await begin(frontend, workspace, HELD_BACK, HELD_BACK.replace("x", "y"))
    request = await frontend.request_opened(session_id)
    assert (request.kind, request.permission) == ("approval", "unsandboxed")
    assert request.title.startswith(f"Run OUTSIDE the sandbox: {HELD_BACK} (its output says: ")
    assert read(hook) is None
    await frontend.must(Answer(request.id, "once"))
    await frontend.must(Answer((await frontend.request_opened(session_id, 2)).id, "reject"))
    await frontend.turn_ended(session_id)
    assert read(hook) == "x\n"
    first, second = frontend.completed_calls(session_id)
    assert (first.state, first.exit_status) == ("completed", 0)
    assert "ran again outside" in first.output
    assert (second.state, second.exit_status) == ("error", 1)


async def test_a_no_leaves_the_result_and_is_asked_for_once_in_a_turn(
    frontend: Frontend, workspace: Path, hook: Path
) -> None:
    session_id = await begin(frontend, workspace, HELD_BACK, HELD_BACK)
    request = await frontend.request_opened(session_id)
    await frontend.must(Answer(request.id, "reject", "not there"))
    ended = await frontend.turn_ended(session_id)
    assert ended.outcome == "completed"
    first, second = frontend.completed_calls(session_id)
    assert "Read-only file system" in first.output
    assert "declined. They said: not there]" in first.output
    assert "Read-only file system" in second.output
    assert len(asked(frontend, session_id)) == 1
    assert read(hook) is None


async def test_always_lets_such_commands_run_outside_from_then_on(
    frontend: Frontend, workspace: Path, hook: Path
) -> None:
    touch = f"touch {hook}"
    session_id = await begin(frontend, workspace, touch, touch, f"{touch} && {HELD_BACK}")
    request = await frontend.request_opened(session_id)
    assert request.always == ("touch *",)
    await frontend.must(Answer(request.id, "always"))
    await frontend.must(Answer((await frontend.request_opened(session_id, 2)).id, "reject"))
    await frontend.turn_ended(session_id)
    once, at_once, other = frontend.completed_calls(session_id)
    assert once.state == at_once.state == "completed"
    assert "sandbox" not in at_once.output
    assert other.state == "error", "a line with another command in it is held"


@pytest.mark.parametrize(
    ("settings", "command"),
    [
        ({"approve": "always"}, HELD_BACK),
        ({"approve": "never"}, HELD_BACK),
        ({"sandbox": "read_only"}, "touch x"),
        (
            {"permissions": (*ALLOWED, DENIED)},
            HELD_BACK,
        ),
    ],
)
async def test_nobody_is_asked_and_nothing_gets_out(
    frontend: Frontend,
    workspace: Path,
    hook: Path,
    settings: dict[str, object],
    command: str,
) -> None:
    session_id = await begin(frontend, workspace, command, **settings)
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert "It ran in a sandbox" in call.output
    assert asked(frontend, session_id) == []
    assert read(hook) is None
    assert read(workspace / "x") is None


async def test_a_rule_for_everything_is_no_answer(
    frontend: Frontend, workspace: Path, hook: Path
) -> None:
    everything = ({"permission": "*", "pattern": "*", "action": "allow"},)
    session_id = await begin(frontend, workspace, HELD_BACK, permissions=everything)
    request = await frontend.request_opened(session_id)
    await frontend.must(Answer(request.id, "reject"))
    await frontend.turn_ended(session_id)
    assert read(hook) is None


async def test_an_interrupt_ends_the_question_and_the_call(
    frontend: Frontend, workspace: Path, hook: Path
) -> None:
    session_id = await begin(frontend, workspace, HELD_BACK)
    await frontend.request_opened(session_id)
    await frontend.must(Interrupt(session_id))
    assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
    assert read(hook) is None


async def test_a_background_command_that_was_held_back_at_once_gets_the_same_way_out(
    frontend: Frontend, workspace: Path, hook: Path
) -> None:
    steps = calls(bash(HELD_BACK, background=True)), text("done")
    session_id = await frontend.session(workspace, *steps, approve="ask", permissions=ALLOWED)
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    assert request.permission == "unsandboxed"
    await frontend.must(Answer(request.id, "once"))
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert "ran again outside" in call.output
    assert call.output.endswith("[b2 exited with status 0]")
    assert read(hook) == "x\n"


WRITES = "find . -name 'greeting*' -fprint found"
"""A command that seems to read, but writes."""


async def begin_unasked(
    frontend: Frontend, workspace: Path, *commands: str, **settings: object
) -> str:
    """Start a turn that runs commands at the same time, with the rules that are built in."""
    step = calls(*(bash(command) for command in commands))
    given: dict[str, Any] = {"approve": "ask", **settings}
    session_id = await frontend.session(workspace, step, text("done"), **given)
    await frontend.say(session_id)
    return session_id


async def test_what_seemed_to_read_and_wanted_to_write_asks_with_what_it_wanted(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await begin_unasked(frontend, workspace, "cat greeting.txt", WRITES, "ls")
    request = await frontend.request_opened(session_id)
    assert request.permission == "bash"
    assert request.subjects == (WRITES,)
    assert request.detail == WRITES
    assert request.title.startswith(f"Allow a command that tried to write: {WRITES}")
    assert "Read-only file system" in request.title
    assert read(workspace / "found") is None
    await frontend.must(Answer(request.id, "once"))
    await frontend.turn_ended(session_id)
    assert read(workspace / "found")
    outputs = {c.arguments: c for c in frontend.completed_calls(session_id)}
    (wrote,) = [call for call in outputs.values() if "fprint" in call.arguments]
    assert (wrote.state, wrote.effect) == ("completed", "write")
    assert "ran again with more access" in wrote.output
    assert len(asked(frontend, session_id)) == 1


@pytest.mark.parametrize(
    "command", ["git config a.b c", "git remote add other https://example.org/x"]
)
async def test_a_change_of_gits_configuration_asks_once_to_run_outside(
    frontend: Frontend, workspace: Path, command: str
) -> None:
    session_id = await begin_unasked(frontend, workspace, command)
    request = await frontend.request_opened(session_id)
    assert request.permission == "unsandboxed"
    await frontend.must(Answer(request.id, "once"))
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert (call.state, call.exit_status) == ("completed", 0), call.output
    assert len(asked(frontend, session_id)) == 1
    config = await git(workspace, "config", "--list")
    assert "a.b=c" in config or "remote.other.url" in config


@pytest.fixture
def hidden() -> Generator[Path]:
    """A directory that commands can't see, unlike those in `/tmp`, of which they have their own."""
    base = Path(__file__).parents[2] / ".pytest_cache"
    base.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base) as directory:
        yield Path(directory)


@pytest.mark.parametrize(
    "command", ["find . -name greeting.txt -fprint {there}/new", "make test", "sh write.sh"]
)
async def test_what_wanted_to_write_outside_the_workspace_asks_once_to_run_outside(
    frontend: Frontend, workspace: Path, hidden: Path, command: str
) -> None:
    """No sandbox of the session could write there, so that a looser one would only fail again."""
    (workspace / "Makefile").write_text(f"test:\n\t@echo x > {hidden}/new\n")
    (workspace / "write.sh").write_text(f"echo x > {hidden}/new\n")
    shown = {"permission": "external_directory", "action": "allow"}
    rules = tuple({**shown, "pattern": pattern} for pattern in (f"{hidden}", f"{hidden}/*"))
    line = command.format(there=hidden)
    session_id = await begin_unasked(frontend, workspace, line, permissions=rules)
    request = await frontend.request_opened(session_id)
    needs_bash = line.startswith("sh ")
    if needs_bash:
        await frontend.must(Answer(request.id, "once"))
        request = await frontend.request_opened(session_id, 2)
    assert request.permission == "unsandboxed", request.title
    await frontend.must(Answer(request.id, "once"))
    await frontend.turn_ended(session_id)
    assert len(asked(frontend, session_id)) == 1 + needs_bash
    assert "ran again outside" in frontend.completed_calls(session_id)[0].output
    assert read(hidden / "new")


async def test_a_build_that_needed_still_more_than_was_allowed_asks_to_run_outside(
    frontend: Frontend, workspace: Path, hidden: Path
) -> None:
    """The line that says what stopped it names no path."""
    write = f"(echo x > {hidden}/new) 2>/dev/null"
    fail = "{ echo Read-only file system; exit 1; }"
    (workspace / "Makefile").write_text(f"test:\n\t@{write} || {fail}\n")
    session_id = await begin_unasked(frontend, workspace, "make test")
    for number, permission in enumerate(("bash", "unsandboxed"), 1):
        request = await frontend.request_opened(session_id, number)
        assert request.permission == permission, request.title
        await frontend.must(Answer(request.id, "once"))
    await frontend.turn_ended(session_id)
    assert read(hidden / "new")


async def test_a_command_that_was_shown_a_path_may_then_write_there_if_the_user_says_so(
    frontend: Frontend, workspace: Path, hidden: Path
) -> None:
    await git(workspace, "init", "-q", "--bare", str(hidden))
    await git(workspace, "remote", "add", "up", str(hidden))
    session_id = await begin_unasked(frontend, workspace, "git push up HEAD:refs/heads/x")
    for number, permission in enumerate(("network", "external_directory", "unsandboxed"), 1):
        request = await frontend.request_opened(session_id, number)
        assert request.permission == permission, request.title
        await frontend.must(Answer(request.id, "once"))
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert (call.state, call.exit_status) == ("completed", 0), call.output
    assert "refs/heads/x" in await git(workspace, "ls-remote", "up")


async def test_what_only_reads_and_missed_a_path_asks_to_see_it(
    frontend: Frontend, workspace: Path, hidden: Path
) -> None:
    (hidden / "a.txt").write_text("found it\n")
    (workspace / "place").write_text(f"{hidden}/a.txt")
    session_id = await begin_unasked(frontend, workspace, "cat $(cat place)")
    request = await frontend.request_opened(session_id)
    assert request.permission == "external_directory", request.title
    await frontend.must(Answer(request.id, "once"))
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert "found it" in call.output
    assert len(asked(frontend, session_id)) == 1


@pytest.mark.parametrize("answer", ["once", "always"])
async def test_a_line_that_could_only_fail_in_a_sandbox_asks_once_to_run_outside(
    frontend: Frontend, workspace: Path, answer: Literal["once", "always"]
) -> None:
    await git(workspace, "worktree", "add", "-q", "tree")
    line = "git worktree remove tree"
    session_id = await begin_unasked(frontend, workspace, line)
    request = await frontend.request_opened(session_id)
    assert (request.permission, request.also) == ("unsandboxed", ("bash",))
    assert request.title == f"Run OUTSIDE the sandbox: {line}"
    await frontend.must(Answer(request.id, answer))
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert (call.state, call.exit_status) == ("completed", 0), call.output
    assert not (workspace / "tree").exists()
    assert len(asked(frontend, session_id)) == 1


@pytest.mark.parametrize("approve", ["always", "never"])
async def test_where_nobody_is_asked_such_a_line_stays_inside(
    frontend: Frontend, workspace: Path, approve: str
) -> None:
    await git(workspace, "worktree", "add", "-q", "tree")
    line = "git worktree remove tree"
    session_id = await begin_unasked(frontend, workspace, line, approve=approve)
    await frontend.turn_ended(session_id)
    assert (workspace / "tree").exists()


async def test_a_no_to_writing_leaves_the_result_and_the_turn_goes_on(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await begin_unasked(frontend, workspace, WRITES)
    request = await frontend.request_opened(session_id)
    await frontend.must(Answer(request.id, "reject", "look only"))
    ended = await frontend.turn_ended(session_id)
    assert ended.outcome == "completed"
    (call,) = frontend.completed_calls(session_id)
    assert "Read-only file system" in call.output
    assert "They said: look only" in call.output
    assert read(workspace / "found") is None


async def test_where_nobody_is_asked_what_wanted_to_write_has_not(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await begin_unasked(frontend, workspace, WRITES, approve="never")
    await frontend.turn_ended(session_id)
    assert asked(frontend, session_id) == []
    assert read(workspace / "found") is None


async def test_a_rule_that_allows_it_answers_before_anybody_is_asked(
    frontend: Frontend, workspace: Path
) -> None:
    rule = {"permission": "bash", "pattern": "find *", "action": "allow"}
    session_id = await begin_unasked(frontend, workspace, WRITES, permissions=(rule,))
    await frontend.turn_ended(session_id)
    assert asked(frontend, session_id) == []
    assert read(workspace / "found")


async def test_steering_that_arrives_leaves_what_wanted_to_write_unasked(
    frontend: Frontend, workspace: Path
) -> None:
    """The command's result is there, and the model gets the message before any other question."""
    session_id = await begin_unasked(frontend, workspace, f"sleep 1; {WRITES}")
    await frontend.until_call(session_id, "running")
    await frontend.must(UserInput(session_id, "never mind", delivery="steer"))
    await frontend.turn_ended(session_id)
    assert asked(frontend, session_id) == []
    assert read(workspace / "found") is None


async def test_what_runs_again_to_write_counts_as_writing_even_if_the_daemon_dies(
    frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await begin_unasked(frontend, workspace, f"{gate.command} && {WRITES}")
    await gate.pass_one()
    await frontend.must(Answer((await frontend.request_opened(session_id)).id, "once"))
    await gate.reached()
    frontend.daemon.kill9()
    frontend.daemon.start()
    await frontend.reconnect()
    ended = await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert (call.error_kind, call.effect) == ("lost", "write")
    assert ended.more_files
    gate.close()


async def test_a_build_that_wants_to_commit_asks_to_run_outside_the_sandbox(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "Makefile").write_text(
        "test:\n\tgit -c user.name=t -c user.email=t commit -qam x\n"
    )
    session_id = await begin_unasked(frontend, workspace, "echo new >> greeting.txt", "make test")
    await frontend.must(Answer((await frontend.request_opened(session_id)).id, "once"))
    request = await frontend.request_opened(session_id, 2)
    assert request.permission == "unsandboxed"
    await frontend.must(Answer(request.id, "once"))
    await frontend.turn_ended(session_id)
    assert "new" in (await git(workspace, "show", "HEAD:greeting.txt"))


async def test_a_repository_that_a_build_makes_is_put_aside_and_the_user_is_told(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "Makefile").write_text(
        "test:\n\tgit init -q sub\n\tgit -C sub config core.fsmonitor 'touch ran; true'\n"
    )
    session_id = await begin_unasked(frontend, workspace, "make test")
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    said = "what other programs execute by themselves: sub/.git. It was renamed to .git.disabled."
    assert said in call.output, call.output
    assert said in warned(frontend, session_id)
    await git(workspace / "sub", "status")
    assert not (workspace / "sub" / "ran").exists()
    assert asked(frontend, session_id) == []


def warned(frontend: Frontend, session_id: str) -> str:
    """All warnings of a session."""
    bodies = [event.body for event in frontend.events(session_id)]
    return " ".join(body.message for body in bodies if isinstance(body, WarningRaised))


async def test_what_editors_and_shells_execute_can_be_made_or_changed_by_no_build(
    frontend: Frontend, workspace: Path
) -> None:
    for name in (".vscode", "kept"):
        (workspace / name).mkdir(parents=True)
    (workspace / ".envrc").write_text("before\n")
    made = (".zed", ".mcp.json", ".unheard-of", "opencode.json", "a.code-workspace", "mise.toml")
    changed = (".envrc", ".vscode/tasks.json")
    lines = [
        "mkdir .zed.disabled",
        *(f"echo evil > {name}" for name in made),
        *(f"- echo evil > {name}" for name in changed),
        "- mv .vscode moved && mkdir -p .vscode && echo evil > .vscode/tasks.json",
        "- rm -rf .vscode && echo evil > .vscode",
        "mkdir .venv .pytest_cache && touch kept/made .venv/made",
    ]
    (workspace / "Makefile").write_text("test:\n" + "".join(f"\t{line}\n" for line in lines))
    session_id = await begin_unasked(frontend, workspace, "make test")
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert (workspace / "kept" / "made").exists(), call.output
    assert (workspace / ".venv" / "made").exists(), call.output
    for name in made:
        assert not (workspace / name).exists(), call.output
        assert name in call.output
        assert name in warned(frontend, session_id)
        assert (workspace / f"{name}.disabled").exists()
    assert (workspace / ".envrc").read_text() == "before\n"
    assert list((workspace / ".vscode").iterdir()) == []
    assert asked(frontend, session_id) == []


async def test_a_repository_that_an_interrupted_build_made_is_disabled_too(
    frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    (workspace / "Makefile").write_text(f"test:\n\tgit init -q sub\n\t{gate.command}\n")
    session_id = await begin_unasked(frontend, workspace, "make test")
    await gate.reached()
    assert (workspace / "sub" / ".git" / "HEAD").exists()
    await frontend.must(Interrupt(session_id))
    assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
    assert not (workspace / "sub" / ".git" / "HEAD").exists()
    gate.close()


async def git(directory: Path, *arguments: str) -> str:
    """Run git as the user would; returns what it printed."""
    done = await trio.run_process(
        ["git", "-c", "safe.directory=*", *arguments], cwd=directory, capture_stdout=True
    )
    return done.stdout.decode()


async def test_a_question_that_only_the_workspace_causes_says_why(
    frontend: Frontend, workspace: Path
) -> None:
    """Only these titles say so: other commands would need approval anyway."""
    (workspace / "Makefile").write_text("test:\n\techo built > built\n")
    config = workspace / ".git" / "config"
    text_before = config.read_text()
    broken_git, hooks = "git can't read the repository", "git executes files in the workspace"
    for broken, command, title in (
        ("[core", "make test", f"Run although {broken_git}: make test"),
        ("[core", "unknown-program", "Run unknown-program"),
        ("[core]\n\thooksPath = .\n", "make test", f"Run although {hooks}: make test"),
    ):
        config.write_text(text_before + broken)
        session_id = await begin_unasked(frontend, workspace, command)
        request = await frontend.request_opened(session_id)
        assert (request.permission, request.title, request.detail) == ("bash", title, command)
        await frontend.must(Answer(request.id, "once"))
        await frontend.turn_ended(session_id)
    assert (workspace / "built").exists()
    config.write_text(text_before)
    session_id = await begin_unasked(frontend, workspace, "make test")
    await frontend.turn_ended(session_id)
    assert asked(frontend, session_id) == []
