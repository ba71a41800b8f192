"""Several sub-agents write in one workspace at the same time, each only in its own scope."""

import subprocess
from pathlib import Path

import pytest
import trio

from e2e.test_attachments import tiller
from e2e.test_sandbox import DEFAULT, NewDaemon, needs_sandbox, no_bubblewrap
from e2e.words import always, bash, calls, text, write
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from support.narrowing import of_kind
from tiller_daemon.models.scripted import CallPart
from tiller_daemon.sandbox.detect import try_out_landlock
from tiller_protocol.answers import RevertResult, SessionDiffResult, SessionResult
from tiller_protocol.events import (
    BackgroundChanged,
    Event,
    ItemCompleted,
    ItemStarted,
    RequestOpened,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
    WarningRaised,
)
from tiller_protocol.items import Patch, SubAgent, ToolCall, UserMessage
from tiller_protocol.ops import Revert, SessionDiff, SessionGet
from tiller_protocol.settings import Rule

ALLOW_ALL = tuple(
    Rule(permission, "*", "allow")
    for permission in ("bash", "unsandboxed", "write", "external_directory", "protected_path")
)
"""Rules that allow a sub-agent everything, but do not lift the limits of its scope."""


@pytest.fixture
def daemon(daemon: Daemon) -> Daemon:
    daemon.configure(DEFAULT)
    return daemon


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A repository with the directories of two sub-agents, and a link from one to the other."""
    made = tmp_path / "work"
    for name in ("a", "b"):
        (made / name).mkdir(parents=True)
        (made / name / "old").write_text(f"old {name}\n")
    (made / "a" / "link").symlink_to("../b")
    (made / "top").write_text("top\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], cwd=made, check=True)
    return made


def task(agent: str, *paths: str, **more: object) -> CallPart:
    return CallPart(
        "task", arguments={"prompt": f"do {agent}", "agent": agent, "paths": [*paths], **more}
    )


def edit(path: str, old: str, new: str) -> CallPart:
    return CallPart("edit", arguments={"path": path, "old": old, "new": new})


def waits_for(mine: str, other: str) -> str:
    """Return a command that ends only if another command runs at the same time."""
    return f"echo {mine} > {mine}/x; until [ -e {other}/x ]; do sleep 0.02; done; echo > {mine}/y"


def child_of(call: ToolCall) -> str:
    return of_kind(SubAgent, call.sub_agent).session_id


async def patch_of(frontend: Frontend, session_id: str) -> Patch:
    result = of_kind(SessionResult, await frontend.must(SessionGet(session_id)))
    (patch,) = [item for item in result.snapshot.items if isinstance(item, Patch)]
    return patch


async def first_turn(frontend: Frontend, session_id: str) -> TurnStarted:
    log = await frontend.log(session_id)
    return next(event.body for event in log if isinstance(event.body, TurnStarted))


async def revert(frontend: Frontend, session_id: str) -> RevertResult:
    log = await frontend.log(session_id)
    turn_id = next(event.turn_id for event in log if isinstance(event.body, TurnStarted))
    return of_kind(RevertResult, await frontend.must(Revert(session_id, turn_id or "")))


def files(place: Path) -> dict[str, str]:
    return {
        str(path.relative_to(place)): path.read_text()
        for path in sorted(place.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }


@needs_sandbox
async def test_two_write_at_once_and_each_has_its_own_files_to_give_back(
    daemon: Daemon, frontend: Frontend, place: Path
) -> None:
    # The directory `n` does not exist yet: a command can create it.
    for mine, other in (("a", "n"), ("n", "a")):
        daemon.make_agent(mine, calls(bash(waits_for(mine, other))), always(f"{mine} is done"))
    before = files(place)
    parent = await frontend.session(place, calls(task("a", "a"), task("n", "./n")), text("done"))
    await frontend.say(parent)
    assert (await frontend.turn_ended(parent)).outcome == "completed"
    of_a, of_n = sorted(frontend.completed_calls(parent), key=lambda call: call.title)
    assert of_a.output.startswith("a is done"), of_a.output
    assert of_n.output.startswith("n is done"), of_n.output
    assert {"a/x", "a/y", "n/x", "n/y"} == files(place).keys() - before.keys()
    a, n = child_of(of_a), child_of(of_n)
    assert (await first_turn(frontend, a)).context.write_paths == ("a",)
    assert (await patch_of(frontend, a)).files == ("a/x", "a/y")
    assert (await patch_of(frontend, n)).files == ("n/x", "n/y")
    assert (await patch_of(frontend, parent)).files == ("a/x", "a/y", "n/x", "n/y")
    diff = of_kind(SessionDiffResult, await frontend.must(SessionDiff(n)))
    assert [file.path for file in diff.files] == ["n/x", "n/y"]
    assert "a/x" not in diff.diff
    assert (await revert(frontend, a)).files == ("a/x", "a/y")
    assert {"n/x", "n/y"} == files(place).keys() - before.keys()
    assert (await revert(frontend, n)).conflicts == ()
    assert files(place) == before


TRESPASSES = (
    bash("echo 1 > b/old"),
    bash("echo 1 > a/link/new"),
    bash("cd b && sed -i s/old/new/ old"),
    bash("mv a z; rm -r b; rm top; echo 1 > top"),
    bash("ln b/old a/hard && echo 1 > a/hard"),
    bash("ln -s ../b a/again; echo 1 > a/again/new"),
    bash("git commit -q --allow-empty -m mine"),
    bash("git push", timeout_s=20),
    write("b/new", "1\n"),
    write("a/link/new", "1\n"),
    write("../outside", "1\n"),
    write(".git/hooks/pre-commit", "1\n"),
    CallPart("read", arguments={"path": "b/old"}),
    edit("b/old", "old", "new"),
    CallPart(
        "apply_patch",
        arguments={
            "patch": "*** Begin Patch\n*** Update File: a/old\n*** Move to: b/moved\n"
            "@@\n-old a\n+x\n*** End Patch"
        },
    ),
    task("deputy", "b"),
    CallPart("task", arguments={"prompt": "go on", "agent": "deputy"}),
)
"""Calls that a sub-agent with the scope `a` tries in vain, in one step each."""


@pytest.mark.parametrize("mechanism", ["bubblewrap", "landlock"])
@needs_sandbox
async def test_nothing_lets_a_sub_agent_change_what_its_task_does_not_declare(
    new_daemon: NewDaemon, place: Path, nursery: trio.Nursery, tmp_path: Path, mechanism: str
) -> None:
    """Tools, commands, links, nested tasks and rules don't let it; and nobody is asked."""
    path = {}
    daemon = new_daemon(DEFAULT)
    if mechanism == "landlock":
        if try_out_landlock().sandbox is None:
            pytest.skip("no landlock")
        path = {"PATH": no_bubblewrap(daemon)}
    steps = [calls(part) for part in TRESPASSES]
    daemon.make_agent("helper", *steps, calls(bash("echo 1 > a/new")), always("so be it"))
    daemon.make_agent("deputy", calls(write("b/new", "1\n"), bash("echo 1 > b/old")), always("no"))
    daemon.start(**path)
    frontend = await Frontend.connect(daemon, nursery)
    before = files(place)
    parent = await frontend.session(
        place,
        calls(task("helper", "a")),
        text("done"),
        permissions=ALLOW_ALL,
        sandbox="full_access",
    )
    await frontend.say(parent)
    await frontend.turn_ended(parent)
    (call,) = frontend.completed_calls(parent)
    assert call.output.startswith("so be it"), call.output
    now = files(place)
    made = {name for name in now.keys() | before.keys() if now.get(name) != before.get(name)}
    assert made == {"a/new"}, call.output
    assert not (tmp_path / "outside").exists()
    assert not list((place / ".git" / "hooks").glob("pre-commit"))
    log = await frontend.log(child_of(call))
    assert not [event for event in log if isinstance(event.body, RequestOpened)]
    frontend.follow(child_of(call))
    await frontend.until_body(child_of(call), TurnEnded)
    done = [one for one in frontend.completed_calls(child_of(call)) if one.name != "read"]
    refused = [one.output for one in done if one.name in ("write", "edit", "apply_patch")]
    assert all("lets you change only a" in output for output in refused), refused
    refused = next(o.output for o in done if '"b"' in o.arguments)
    assert "must be within that. This call declares b." in refused
    await frontend.close()


@needs_sandbox
async def test_nobody_else_changes_what_a_sub_agent_in_the_background_may_change(
    daemon: Daemon, frontend: Frontend, place: Path
) -> None:
    """Neither the main turn, nor its other sub-agents, nor a command that it left running."""
    waits = "until [ -e top2 ]; do sleep 0.02; done; echo t1 > a/x; echo t1 > new/x"
    daemon.make_agent("slow", calls(bash(waits)), always("slow is done"))
    daemon.make_agent("other", calls(write("a/y", "1\n"), write("b/y", "1\n")), always("ok"))
    main = (
        calls(bash("sleep 600", background=True)),
        calls(task("slow", "a", background=True)),
        calls(CallPart("bash_kill", arguments={"id": "b1"})),
        calls(task("slow", "a", "new", background=True)),
        calls(write("a/y", "1\n")),
        calls(bash("echo 1 > a/y; mkdir new; mv a z; echo 1 > b/x")),
        calls(bash("git status", background=True)),
        calls(task("other", "a", "b")),
        calls(CallPart("task", arguments={"prompt": "go", "agent": "other"})),
        calls(write("top2", "go on\n")),
        calls(CallPart("bash_output", arguments={"id": "t1", "wait_s": 30})),
        calls(write("a/z", "1\n")),
    )
    before = files(place)
    parent = await frontend.session(place, *main, always("done"), permissions=ALLOW_ALL)
    await frontend.say(parent)
    await frontend.turn_ended(parent)
    await frontend.until(parent, _has_ended)
    made = files(place).keys() - before.keys()
    outputs = [call.output for call in frontend.completed_calls(parent)]
    assert "these background commands may write there, too: b1" in outputs[1], outputs
    assert "the background sub-agent t1 (slow" in outputs[4], outputs
    assert "owns a/y until it ends" in outputs[4], outputs
    assert "Read-only file system" in outputs[5], outputs
    assert "the background sub-agent t1" in outputs[7], outputs
    assert "owns a, b until it ends" in outputs[7], outputs
    assert made == {"a/x", "new/x", "b/x", "b/y", "top2", "a/z"}, (made, outputs)
    log = await frontend.log(parent)
    patches = [
        item for event in log if isinstance(item := getattr(event.body, "item", None), Patch)
    ]
    assert {name for patch in patches for name in patch.files} == {"b/x", "b/y", "top2", "a/z"}


def _has_ended(event: object) -> bool:
    body = getattr(event, "body", None)
    return isinstance(body, BackgroundChanged) and any(
        one.id == "t1" and one.state != "running" for one in body.background
    )


def _is_report(event: Event) -> bool:
    item = event.body.item if isinstance(event.body, ItemStarted) else None
    return isinstance(item, UserMessage) and item.client == "task"


HOOK = """
[[hooks]]
on = "tool_before"
tool = "task"
command = '''
case "$(cat)" in
*into-b*) echo '{"arguments": {"prompt": "do b", "agent": "b", "paths": ["b"]}}';;
esac
'''
"""


async def test_a_task_whose_paths_a_hook_rewrites_runs_behind_those_that_it_was_to_run_beside(
    daemon: Daemon, frontend: Frontend, place: Path
) -> None:
    daemon.configure(DEFAULT + HOOK)
    for name in ("a", "b"):
        daemon.make_agent(name, calls(write(f"b/{name}", "1\n")), always("done"))
    parts = (task("a", "a", prompt="into-b"), task("b", "b"))
    parent = await frontend.session(place, calls(*parts), text("done"))
    await frontend.say(parent)
    await frontend.turn_ended(parent)
    first, second = frontend.completed_calls(parent)
    assert (first.rewritten_arguments, second.title) == ("", "b (may change b): do b")
    began = [
        event.seq
        for event in frontend.events(parent)
        if isinstance(event.body, ToolCallUpdated)
        and (event.body.item_id, event.body.state) == (second.id, "running")
    ]
    ended = [
        event.seq
        for event in frontend.events(parent)
        if isinstance(event.body, ItemCompleted) and event.body.item == first
    ]
    assert min(began) > max(ended)


async def test_a_revert_names_the_background_sub_agents_whose_changes_stay_and_how_to_undo_them(
    daemon: Daemon, frontend: Frontend, place: Path
) -> None:
    daemon.configure(CONFIG)
    daemon.make_agent("slow", calls(write("a/x", "t1\n")), always("slow is done"))
    daemon.make_agent("idle", always("nothing to do"))
    # Changes by a foreground sub-agent are also changes of the turn.
    daemon.make_agent("near", calls(write("b/x", "near\n")), always("near is done"))
    before = files(place)
    steps = (
        calls(task("slow", "a", background=True), task("idle", "n", background=True)),
        calls(task("near", "b")),
        calls(write("top", "changed\n")),
        always("done"),
    )
    parent = await frontend.session(place, *steps, permissions=ALLOW_ALL)
    await frontend.say(parent)
    heard = await frontend.until(parent, _is_report, 2)
    await frontend.until(parent, lambda e: e.seq > heard.seq and isinstance(e.body, TurnEnded))
    child = next(
        child_of(call) for call in frontend.completed_calls(parent) if '"slow"' in call.arguments
    )
    first = next(e.turn_id for e in await frontend.log(parent) if e.turn_id)
    done = await tiller(daemon, "revert", parent, first, cwd=place)
    assert files(place) == {**before, "a/x": "t1\n"}
    assert f"to revert these changes as well: tiller revert {child}\n" in done.stderr.decode(), done
    assert done.stderr.decode().count("tiller revert") == 1
    warned = [event.body for event in await frontend.log(parent)]
    (told,) = [body.message for body in warned if isinstance(body, WarningRaised)]
    assert f"`tiller revert {child}`." in told
    await tiller(daemon, "revert", child, cwd=place)
    assert files(place) == before
