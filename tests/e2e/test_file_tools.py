"""The tools for files and pages, as a frontend sees them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.words import always, calls, calls_in, read, text
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from support.http_server import serving, status
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.events import RequestOpened
from tiller_protocol.ops import Answer

FILES = 60
KILLS = 6

GREETING = "greeting.txt"

PATCH = """*** Begin Patch
*** Update File: greeting.txt
@@
-hello
+good morning
*** Add File: new/name.txt
+you
*** End Patch
"""


def patch(of: str) -> CallPart:
    return CallPart("apply_patch", arguments={"patch": of})


def fetch(url: str) -> CallPart:
    return CallPart("fetch", arguments={"url": url})


def found(directory: Path, pattern: str) -> list[Path]:
    return list(directory.glob(pattern))


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (CallPart("write", arguments={"path": "greeting.txt", "content": "x"}), "not been read"),
        (CallPart("edit", arguments={"path": "none", "old": "a", "new": "b"}), "does not exist"),
        (CallPart("edit", arguments={"path": "readme.md", "old": "a", "new": "b"}), "not"),
        (patch(PATCH.replace("-hello", "-farewell")), "The file has no such lines"),
        (patch(PATCH.replace("new/name.txt", "greeting.txt/name")), "greeting.txt"),
    ],
)
async def test_nobody_is_asked_about_a_change_that_can_not_be_made(
    frontend: Frontend, workspace: Path, call: CallPart, why: str
) -> None:
    (workspace / "readme.md").write_text("text\n")
    seen = (
        calls(read("readme.md")) if "patch" not in (call.arguments or {}) else calls(read(GREETING))
    )
    session_id = await frontend.session(workspace, seen, calls(call), text("I see"), approve="ask")
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    failed = frontend.completed_calls(session_id)[-1]
    assert failed.error_kind == "failed"
    assert why in failed.output
    assert not [e for e in frontend.events(session_id) if isinstance(e.body, RequestOpened)]
    assert (workspace / GREETING).read_text() == "hello\n"


async def test_a_patch_is_asked_about_once_and_shown_whole(
    frontend: Frontend, workspace: Path
) -> None:
    """One request with all files and the change; the call's result and its diff go to everybody."""
    session_id = await frontend.session(
        workspace, calls(read("greeting.txt")), calls(patch(PATCH)), text("done"), approve="ask"
    )
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    assert (request.permission, request.subjects) == ("write", ("greeting.txt", "new/name.txt"))
    assert "-hello\n+good morning\n" in request.detail
    await frontend.must(Answer(request.id, "once"))
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    call = frontend.completed_calls(session_id)[-1]
    assert call.output.startswith("Changed:\nM greeting.txt\nA new/name.txt")
    assert call.diff == request.detail
    assert (workspace / "greeting.txt").read_text() == "good morning\n"
    assert (workspace / "new/name.txt").read_text() == "you\n"


@pytest.mark.parametrize("number", range(KILLS))
@pytest.mark.nightly
@pytest.mark.promise("G11")
async def test_a_kill_in_the_middle_of_a_patch_leaves_all_files_old_or_all_new(
    new_daemon: Callable[[], Daemon], workspace: Path, nursery: trio.Nursery, number: int
) -> None:
    """`kill -9` while a patch of many files is made → after the next start none is left between."""
    names = [f"f{i}" for i in range(FILES)]
    for name in names:
        (workspace / name).write_text("old\n")
    body = "".join(f"*** Update File: {name}\n@@\n-old\n+new\n" for name in names)
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(
        workspace,
        calls(*map(read, names)),
        calls(patch(f"*** Begin Patch\n{body}*** End Patch\n")),
        always("I see"),
    )
    await frontend.say(session_id)
    journals = daemon.places.state / "journals"
    with trio.fail_after(30):
        while not found(journals, "*.journal"):
            await trio.lowlevel.checkpoint()
        # If the patch is done before the test sees it, the kill comes after its end.
        far = number * FILES * 2 // KILLS
        while len(found(workspace, ".tiller-*")) < far and found(journals, "*.journal"):
            await trio.lowlevel.checkpoint()
    daemon.kill9()
    daemon.start()
    await frontend.reconnect()
    await frontend.turn_ended(session_id)
    assert {(workspace / name).read_text() for name in names} in ({"old\n"}, {"new\n"})
    assert found(workspace, ".tiller-*") + found(journals, "*") == []
    call = frontend.completed_calls(session_id)[-1]
    assert (call.name, call.error_kind) in (("apply_patch", "lost"), ("apply_patch", None))
    await frontend.close()


async def test_a_page_is_asked_about_by_its_server(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    """The answer `always` covers the page's server; the model gets Markdown."""
    daemon = new_daemon(f"{CONFIG}\n[fetch]\nprivate_addresses = true\n")
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    page = status(200, b"<h1>Title</h1>", Content_Type="text/html")
    async with serving(page) as server:
        here = f"127.0.0.1:{server.port}"
        session_id = await frontend.session(
            workspace,
            calls(fetch(f"http://{here}/a")),
            calls(fetch(f"http://{here}/b")),
            text("done"),
            approve="ask",
        )
        await frontend.say(session_id)
        request = await frontend.request_opened(session_id)
        assert (request.permission, request.subjects, request.always) == ("fetch", (here,), (here,))
        await frontend.must(Answer(request.id, "always"))
        assert (await frontend.turn_ended(session_id)).outcome == "completed"
    outputs = [call.output for call in calls_in(frontend.requests(session_id)[-1].items)]
    assert outputs == [f"http://{here}/{name} (text/html):\n\n# Title" for name in "ab"]
    await frontend.close()


async def test_this_machine_is_not_fetched_from_unless_it_is_configured(
    frontend: Frontend, workspace: Path
) -> None:
    async with serving(status(200, b"secret")) as server:
        url = f"http://localhost:{server.port}/"
        session_id = await frontend.session(workspace, calls(fetch(url)), text("done"))
        await frontend.say(session_id)
        await frontend.turn_ended(session_id)
        assert server.connections == 0
    (call,) = frontend.completed_calls(session_id)
    assert call.error_kind == "failed"
    assert "is not on the public internet" in call.output
