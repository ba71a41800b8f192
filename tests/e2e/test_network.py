"""Commands that are known to need the network ask first, and get nothing but the network."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from e2e.test_escalation import asked, daemon
from e2e.test_sandbox import DEFAULT, needs_sandbox, no_bubblewrap, read
from e2e.words import bash, calls, text
from support.daemon import START_S, Daemon
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart
from tiller_daemon.sandbox.detect import try_out_landlock
from tiller_protocol.answers import RulesResult
from tiller_protocol.items import Allowed, ToolCall
from tiller_protocol.ops import Answer, RuleRevoke, RulesList
from tiller_protocol.settings import Rule

CURL = """#!/bin/bash
exec 3<>"/dev/tcp/127.0.0.1/$1" || { echo "connect: Network is unreachable"; exit 7; }
printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3
head -n 1 <&3
"""
"""A program of this name, which says what programs say without a network."""

ANY = Rule("bash", "*", "allow")

__all__ = ["daemon"]

pytestmark = needs_sandbox


class Site:
    """A server on this machine, which counts its visitors."""

    def __init__(self) -> None:
        self.port, self.visits = 0, 0
        self.visited = trio.Event()

    async def serve(self, stream: trio.SocketStream) -> None:
        self.visits += 1
        self.visited.set()
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.0 404 reached\r\n\r\n")


@pytest.fixture
async def site(nursery: trio.Nursery) -> Site:
    made = Site()
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    made.port = listener.socket.getsockname()[1]
    nursery.start_soon(trio.serve_listeners, made.serve, [listener])
    return made


@pytest.fixture
def project(workspace: Path) -> Path:
    """A workspace with a program `curl` of its own."""
    (workspace / "curl").write_text(CURL)
    (workspace / "curl").chmod(0o755)
    (workspace / ".vscode").mkdir()
    return workspace


@asynccontextmanager
async def connected(
    daemon: Daemon, nursery: trio.Nursery, **variables: str
) -> AsyncGenerator[Frontend]:
    daemon.start(**variables)
    frontend = await Frontend.connect(daemon, nursery)
    yield frontend
    await frontend.close()


async def begin(frontend: Frontend, project: Path, *parts: CallPart, **settings: object) -> str:
    """Start a turn that makes these calls in order; return the session."""
    steps = [calls(part) for part in parts]
    given = {"approve": "ask", **settings}
    session_id = await frontend.session(project, *steps, text("done"), **given)
    await frontend.say(session_id)
    return session_id


async def done(frontend: Frontend, session_id: str) -> list[ToolCall]:
    await frontend.turn_ended(session_id)
    return frontend.completed_calls(session_id)


async def answer(frontend: Frontend, session_id: str, number: int, *words: str) -> None:
    request = await frontend.request_opened(session_id, number)
    await frontend.must(Answer(request.id, *words))  # pyright: ignore[reportArgumentType]


def of_network(call: ToolCall) -> list[Allowed]:
    return [one for one in call.allowed if one.permission == "network"]


async def test_it_asks_once_before_it_fails_and_files_stay_protected(
    frontend: Frontend, project: Path, site: Site
) -> None:
    line = f"./curl {site.port}"
    session_id = await begin(
        frontend,
        project,
        bash(line),
        bash(f"{line}; echo x > .vscode/a"),
        bash(line),
        bash("./deploy"),
    )
    request = await frontend.request_opened(session_id)
    assert (request.permission, request.subjects) == ("network", (line,))
    assert request.title == f"Run with network access: {line}"
    assert (request.detail, request.detail_kind) == (line, "command")
    assert request.always == (line,)
    assert request.always_here == str(project)
    assert site.visits == 0
    await frontend.must(Answer(request.id, "once"))
    second = await frontend.request_opened(session_id, 2)
    assert (second.permission, second.always, site.visits) == ("network", (), 1)
    await frontend.must(Answer(second.id, "once"))
    third = await frontend.request_opened(session_id, 3)
    assert (third.permission, site.visits) == ("unsandboxed", 2)
    await frontend.must(Answer(third.id, "reject", "not there"))
    await answer(frontend, session_id, 4, "reject", "no more")
    fifth = await frontend.request_opened(session_id, 5)
    assert (fifth.permission, fifth.subjects) == ("bash", ("./deploy",))
    await frontend.must(Answer(fifth.id, "reject", "no"))
    first, held, refused, _ = await done(frontend, session_id)
    assert (first.state, first.exit_status) == ("completed", 0)
    assert "404 reached" in first.output
    assert [one.by for one in of_network(first)] == ["user"]
    assert "Read-only file system" in held.output
    assert read(project / ".vscode" / "a") is None
    assert (refused.error_kind, refused.allowed) == ("denied", ())
    assert (site.visits, len(asked(frontend, session_id))) == (2, 5)


@pytest.mark.parametrize(
    "settings",
    [
        {"approve": "always"},
        {"approve": "never"},
        {"permissions": (ANY, Rule("network", "*", "deny")), "approve": "always"},
        {"approve": "always", "permissions": (Rule("*", "*", "allow"),)},
        {"sandbox": "read_only"},
    ],
)
async def test_where_nobody_is_asked_it_runs_without_a_network(
    frontend: Frontend, project: Path, site: Site, settings: dict[str, object]
) -> None:
    given = {"permissions": (ANY,), **settings}
    session_id = await begin(frontend, project, bash(f"./curl {site.port}"), **given)
    (call,) = await done(frontend, session_id)
    assert "Network is unreachable" in call.output
    assert (site.visits, asked(frontend, session_id), of_network(call)) == (0, [], [])


async def test_always_opens_it_to_these_commands_until_the_rule_is_revoked(
    frontend: Frontend, project: Path, site: Site
) -> None:
    line = f"git ls-remote http://127.0.0.1:{site.port}/x"
    session_id = await begin(
        frontend,
        project,
        bash(line),
        bash(f"cd . && {line}y 2>&1 | tail -1"),
        bash(f"{line} && ./deploy"),
        bash(f"X=1 {line}"),
    )
    request = await frontend.request_opened(session_id)
    assert request.always == ("git ls-remote *",)
    await frontend.must(Answer(request.id, "always"))
    for number in (2, 3):
        other = await frontend.request_opened(session_id, number)
        assert (other.permission, other.always) == ("network", ())
        await frontend.must(Answer(other.id, "reject", "no"))
    first, second, *others = await done(frontend, session_id)
    assert [one.by for one in of_network(first)] == ["user"]
    granted = Rule("network", "git ls-remote *", "allow", granted=True)
    assert [(one.by, one.rule) for one in second.allowed] == [("grant", granted)] * 2
    assert [call.error_kind for call in others] == ["denied"] * 2
    visits = site.visits
    assert visits >= 2
    listed = await frontend.must(RulesList(session_id=session_id))
    assert isinstance(listed, RulesResult)
    (rule,) = [one for one in listed.rules if one.permission == "network"]
    await frontend.must(RuleRevoke(rule.id, session_id=session_id))
    settings = (await frontend.snapshot(session_id)).settings
    assert not [one for one in settings.permissions or () if one.permission == "network"]


async def test_a_lasting_rule_opens_it_in_other_sessions_and_a_denial_closes_it(
    frontend: Frontend, project: Path, site: Site
) -> None:
    line = f"./curl {site.port}"
    session_id = await begin(frontend, project, bash(line))
    await answer(frontend, session_id, 1, "always_here")
    await done(frontend, session_id)
    session_id = await begin(frontend, project, bash(line), approve="never")
    (call,) = await done(frontend, session_id)
    assert [one.by for one in call.allowed] == ["lasting"] * 2
    assert site.visits == 2
    denied = (ANY, Rule("network", "*curl*", "deny"))
    session_id = await begin(frontend, project, bash(line), permissions=denied)
    # It fails as it did before there were such questions, and then asks to leave the sandbox.
    request = await frontend.request_opened(session_id)
    assert (request.permission, site.visits) == ("unsandboxed", 2)
    await frontend.must(Answer(request.id, "reject", "no"))
    await done(frontend, session_id)


async def test_what_fails_with_a_network_does_not_ask_for_it_again(
    frontend: Frontend, project: Path, site: Site
) -> None:
    (project / "fail").write_text('#!/bin/sh\necho "$*"\nexit 1\n')
    (project / "fail").chmod(0o755)
    fails, keys = "./fail Could not resolve host: x", "./fail Host key verification failed."
    rules = (ANY, Rule("network", "*", "allow"))
    session_id = await begin(frontend, project, bash(fails), bash(keys), permissions=rules)
    request = await frontend.request_opened(session_id)
    assert (request.permission, request.subjects) == ("unsandboxed", (keys,)), request.title
    await frontend.must(Answer(request.id, "reject", "no"))
    assert "sandbox" not in (await done(frontend, session_id))[0].output


async def test_a_background_command_and_a_build_have_it_as_well(
    frontend: Frontend, project: Path, site: Site
) -> None:
    (project / "Makefile").write_text(f"test:\n\t./curl {site.port}; echo x > .vscode/a || true\n")
    rules = (Rule("network", "make test", "allow"),)
    session_id = await begin(
        frontend,
        project,
        bash("make test"),
        bash(f"./curl {site.port}", background=True),
        permissions=rules,
    )
    request = await frontend.request_opened(session_id)
    site.visited = trio.Event()
    await frontend.must(Answer(request.id, "once"))
    built, started = await done(frontend, session_id)
    assert "404 reached" in built.output
    assert "Read-only file system" in built.output
    assert [one.by for one in of_network(started)] == ["user"]
    with trio.fail_after(START_S):
        await site.visited.wait()


async def test_landlock_opens_it_once_too(
    new_daemon: Callable[..., Daemon],
    nursery: trio.Nursery,
    project: Path,
    site: Site,
) -> None:
    if problem := try_out_landlock().problem:
        pytest.skip(problem)
    daemon = new_daemon(DEFAULT)
    line = f"./curl {site.port}"
    async with connected(daemon, nursery, PATH=no_bubblewrap(daemon)) as frontend:
        session_id = await begin(frontend, project, bash(line), approve="always")
        (closed,) = await done(frontend, session_id)
        assert (closed.exit_status, site.visits) == (7, 0)
        session_id = await begin(frontend, project, bash(line))
        request = await frontend.request_opened(session_id)
        assert (request.permission, request.also) == ("unsandboxed", ("network", "bash"))
        await frontend.must(Answer(request.id, "once"))
        (call,) = await done(frontend, session_id)
        assert ("404 reached" in call.output, site.visits) == (True, 1)
        assert len(asked(frontend, session_id)) == 1
