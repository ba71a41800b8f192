"""The extension for VS Code: what its page shows and what its commands do, in front of a daemon.

The editor is a stand-in (`vscode/vscode.mjs`), the page's own script runs in a stand-in for a
document: both have only what the extension uses. No test here runs the editor itself.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.gates import Gate
from e2e.words import bash, calls, calls_in, hang, read, said_in, text
from editors.code import EXTENSION, TILLER, Code, a_code, build
from editors.logs import put_back
from editors.words import (
    ASK,
    EDIT,
    EDIT_AGAIN,
    ENVRC,
    HOSTILE_COMMAND,
    HOSTILE_COMMAND_SHOWN,
    LENT,
    known_characters,
    made_to_lend,
)
from support.daemon import Daemon
from support.frontend import Frontend
from support.typescript import install
from tiller_client.rendering.text import sanitized, verbatim
from tiller_daemon.models.scripted import CallPart, ReasoningPart, ScriptStep, TextPart
from tiller_daemon.tools.editing.diff import unified_diff
from tiller_daemon.tools.truncation import truncate
from tiller_protocol.answers import RulesResult
from tiller_protocol.ops import Replay, RulesList, SessionConfigure
from tiller_protocol.places import LOG_FILE

Opening = Callable[..., Awaitable[Code]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("vscode"))


@pytest.fixture
async def open_code(built: Path) -> AsyncGenerator[Opening]:
    """Opens a window; it is closed with the test."""
    async with AsyncExitStack() as stack:

        async def start(daemon: Daemon, directory: Path, command: Sequence[str] = TILLER) -> Code:
            return await stack.enter_async_context(a_code(daemon, built, directory, command))

        yield start


async def opened(
    open_code: Opening, daemon: Daemon, frontend: Frontend, workspace: Path, *steps: ScriptStep
) -> tuple[Code, str]:
    """A window that shows a new session, which plays a script and asks."""
    session_id = await frontend.session(workspace, *steps, approve="ask")
    code = await open_code(daemon, workspace)
    return code, session_id


async def test_an_edit_is_approved_with_its_diff_and_its_turn_is_compared_and_reverted(
    open_code: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    above = "above\n" * 9  # more than a diff shows
    (workspace / "greeting.txt").write_text(f"{above}hello\nbelow\n")
    plan = CallPart("plan", arguments={"items": [{"text": "greet", "state": "in_progress"}]})
    thinks = ScriptStep(
        parts=(ReasoningPart("Hm."), TextPart("Let me see."), read("greeting.txt"), plan)
    )
    steps = (thinks, calls(EDIT), text("All done.", 3))
    code, _ = await opened(open_code, daemon, frontend, workspace, *steps)
    await code.type("greet shorter")
    shown = await code.until_shown("[Allow once]")
    assert "greet shorter\n▸ ∴ reasoning\nLet me see.\n▸ ● read greeting.txt ok" in shown
    assert "▶ greet" in shown
    assert "? Edit greeting.txt\n" in shown
    assert "\n-hello\n+hi\n" in shown
    assert "waiting" in code.bar
    await code.click("Diff")
    compared = await code.until_report("compared")
    assert compared["before"] == f"{above}hello\nbelow\n"
    assert compared["after"] == f"{above}hi\nbelow\n"
    await code.click("Allow once")
    shown = await code.until_shown("── completed")
    assert (workspace / "greeting.txt").read_text() == f"{above}hi\nbelow\n"
    assert "✓ allowed once by vscode" in shown
    assert "All done.\n── completed" in shown
    assert await code.again() == shown
    await code.click("Changes", "Compare all")
    assert (await code.until_report("compared", 2))["before"] == f"{above}hello\nbelow\n"
    await code.command("changes", "greeting.txt")
    assert (await code.until_report("opened"))["path"] == str(workspace / "greeting.txt")
    await code.click("+hi")
    assert (await code.until_report("opened", 2))["line"] == 10
    await code.command("revert", "greet shorter", "Revert")
    await code.until_shown("reverted: history and files are back at an earlier turn")
    assert (workspace / "greeting.txt").read_text() == f"{above}hello\nbelow\n"
    await code.command("revert", "greet shorter")
    assert code.reports("offered")[-1]["labels"] == []
    await code.command("unrevert")
    await code.until_shown("the revert was undone")
    assert (workspace / "greeting.txt").read_text() == f"{above}hi\nbelow\n"


@pytest.mark.nightly
async def test_a_message_steers_the_running_turn_or_waits_and_can_be_taken_back(
    open_code: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    steps = (calls(bash(gate.command)), text("seen"), text("after it"), hang("I think"))
    code, session_id = await opened(open_code, daemon, frontend, workspace, *steps)
    await code.type("go")
    await gate.reached()
    await code.until_shown("[Steer]")
    await code.type("leave the tests")
    await code.until_shown("⇢ leave the tests")
    await code.type("then the docs", ctrlKey=True)
    await code.until_shown("⧗ then the docs")
    await code.command("queue", "then the rest")
    await code.until_shown("⧗ then the rest")
    await code.click("✕")
    await code.until_shown("> then the rest")
    gate.open()
    shown = await code.until_shown("after it\n── completed")
    assert "leave the tests (steering)\nseen" in shown
    assert "then the docs (queued)\nafter it" in shown
    assert "⧗" not in shown
    assert await code.again() == shown
    snapshot = await frontend.snapshot(session_id)
    assert said_in(tuple(snapshot.items)) == ["go", "leave the tests", "then the docs"]
    await code.command("steer", "too late")
    await code.until_shown("> too late")
    assert "nothing to steer" in await code.until_report("error")
    await code.type("on")
    await code.until_shown("I think")
    await code.click("Stop")
    await code.until_shown("── interrupted")


@pytest.mark.parametrize("button", ["Always in this session", "Always here"])
async def test_what_is_always_allowed_is_asked_once(
    open_code: Opening, daemon: Daemon, frontend: Frontend, workspace: Path, button: str
) -> None:
    steps = (calls(read("greeting.txt")), calls(EDIT), calls(EDIT_AGAIN), text("done"))
    code, session_id = await opened(open_code, daemon, frontend, workspace, *steps)
    await code.type("go")
    shown = await code.until_shown(f"[{button}]")
    assert f"“always here” allows it in every session of {workspace}" in shown
    await code.click(button)
    shown = await code.until_shown("done\n── completed")
    assert shown.count("? Edit") == 1
    assert (workspace / "greeting.txt").read_text() == "hey\n"
    listed = await frontend.must(RulesList(workspace=str(workspace), session_id=session_id))
    assert isinstance(listed, RulesResult)
    lasts = button == "Always here"
    assert [one.workspace for one in listed.rules] == [str(workspace) if lasts else ""]


async def test_what_is_asked_is_shown_verbatim_and_a_rejection_has_a_reason_or_ends_the_turn(
    open_code: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    steps = (
        calls(bash(HOSTILE_COMMAND)),
        calls(bash("curl [y](command:evil).invalid $(bug)")),
        text("never"),
    )
    code, session_id = await opened(open_code, daemon, frontend, workspace, *steps)
    await code.do("user", {"visible": False})
    await code.type("<img src=x onerror=alert(1)>")
    shown = await code.until_shown("[Reject …]")
    assert HOSTILE_COMMAND_SHOWN in shown
    assert not {"\x1b", "\u202e"} & set(shown)
    assert "<img src=x onerror=alert(1)>" in shown, "it is text, as it was written"
    await code.click("Reject …")  # dismissed: nothing happens
    await code.click("Reject …", "not from there")
    await code.until_shown("✗ rejected by vscode: not from there")
    asked = await code.until_report("warning", 2)
    assert "tiller asks" in asked
    assert "](" not in asked
    assert "$(" not in asked
    await code.command("answer", "Reject", "")
    await code.until_shown("── blocked")
    assert "not from there" in str((await frontend.snapshot(session_id)).items)


@pytest.mark.nightly
async def test_what_is_asked_names_all_permissions_and_its_diff_is_verbatim(
    open_code: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    steps = (calls(ENVRC), text("never"))
    code, _ = await opened(open_code, daemon, frontend, workspace, *steps)
    await code.type("go")
    shown = await code.until_shown("[Diff]")
    assert "? Write files that may make other programs run something: .envrc" in shown
    assert "! needs several permissions: protected_path, write\n" in shown
    assert "+a⟨U+202E⟩b⟨U+00A0⟩␠" in shown
    await code.click("Diff")
    compared = await code.until_report("compared")
    assert compared["after"] == "a⟨U+202E⟩b⟨U+00A0⟩␠\n\tc\n"


async def test_a_question_is_answered_by_a_choice_or_in_words(
    open_code: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    steps = (calls(ASK), calls(ASK), text("fine"))
    code, _ = await opened(open_code, daemon, frontend, workspace, *steps)
    await code.type("go")
    shown = await code.until_shown("[Answer …]")
    assert "1. tabs\n2. blanks" in shown
    await code.click("Answer …", "blanks")
    await code.until_shown("✓ answered by vscode: blanks\n")
    await code.until_shown("[Answer …]")
    await code.command("answer", "Answer", "Something else", "neither")
    await code.until_shown("✓ answered by vscode: neither")
    await code.until_shown("fine\n── completed")


async def test_lines_of_an_editor_go_with_a_question_and_a_file_by_its_path_or_as_it_is_not_saved(
    open_code: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    look = calls(read("greeting.txt"))
    steps = (text("a greeting"), look, text("a file"), look, calls(EDIT), text("unsaved"))
    session_id = await frontend.session(workspace, *steps, approve="ask")
    await frontend.must(Replay(session_id, 0, follower="other"))
    code = await open_code(daemon, workspace)
    await code.until_shown("also: e2e")
    shown = {"path": str(workspace / "greeting.txt"), "lines": ["hello", "not saved", "left out"]}
    await code.do("edit", {**shown, "dirty": False, "selected": [0, 1]})
    await code.command("sendSelection", "what is this?")
    await code.until_shown("a greeting\n── completed")
    await code.command("sendFile", "and this?")
    await code.until_shown("a file\n── completed")
    await code.do("edit", {**shown, "dirty": True, "selected": [0, 1]})
    await code.command("sendFile", "and now?")
    await code.until_shown("unsaved\n── completed")
    first, second, third = said_in(tuple((await frontend.snapshot(session_id)).items))
    assert first.startswith("what is this?")
    assert "greeting.txt, lines 1 to 2:\nhello\nnot saved\n" in first
    assert "left out" not in first
    assert second == "and this?"
    assert "greeting.txt, lines 1 to 3:\nhello\nnot saved\nleft out\n" in third
    assert "and this? @greeting.txt" in code.screen
    on_disk, lent, refused = calls_in(daemon.requests(session_id)[-1].items)
    assert "not saved" not in on_disk.output
    assert "\tnot saved\n" in lent.output
    assert "was left as it is" in refused.output
    assert (workspace / "greeting.txt").read_text() == "hello\n"


async def test_sessions_are_made_chosen_and_configured(
    open_code: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    code, first = await opened(open_code, daemon, frontend, workspace, text("of the first"))
    await code.type("go")
    await code.until_shown("of the first\n── completed")
    other = daemon.script(text("of the second"))
    await code.do("configure", {"model": other, "agent": "plan"})
    await code.command("new")
    await code.until_gone("of the first")
    await code.type("go")
    await code.until_shown("of the second\n── completed")
    assert other in code.bar
    assert "tiller.chat.focus" in code.reports("executed")
    await frontend.must(SessionConfigure(first, title="the $(first)"))
    await code.command("sessions", "the $ (first)")
    shown = await code.until_shown("of the first\n── completed")
    assert "of the second" not in shown
    await code.command("agent", "plan")
    await code.command("model", "scripted/main")
    settings = (await frontend.snapshot(first)).settings
    assert (settings.agent, settings.model) == ("plan", "scripted/main")


@pytest.mark.nightly
async def test_a_killed_daemon_is_followed_again_with_nothing_lost_or_doubled(
    open_code: Opening, new_daemon: Callable[..., Daemon], workspace: Path
) -> None:
    daemon = new_daemon()
    daemon.start()
    look = calls(read("greeting.txt"))
    daemon.play("main", text("one"), hang("in the middle"), look, text("three"))
    code = await open_code(daemon, workspace)
    await code.type("first")
    await code.until_shown("one\n── completed")
    await code.type("second")
    await code.until_shown("in the middle")
    daemon.kill9()  # `tiller rpc` starts it again
    await code.until_shown("── interrupted")
    unsaved = {"path": str(workspace / "greeting.txt"), "lines": ["of the editor"]}
    await code.do("edit", {**unsaved, "dirty": True, "selected": [0, 0]})
    await code.do("kill_rpc")
    await code.type("third")
    shown = await code.until_shown("three\n── completed")
    assert b"of the editor" in daemon.record.read_bytes(), "it is lent to the new daemon"
    for words in ("first\none\n", "second\nin the middle", "third\n", "three\n── completed"):
        assert shown.count(words) == 1, shown
    assert await code.again() == shown
    stop = [sys.executable, "-m", "tiller_client", "daemon", "stop"]
    await trio.run_process(stop, env=daemon.variables)
    await code.until_shown("reconnecting")


async def test_a_turn_whose_end_can_not_be_stored_is_said_and_the_session_is_followed_again(
    open_code: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    # A call that may write starts once the log says so.
    steps = calls(bash(f"{gate.command} && true > new")), text("And on.")
    session_id = await frontend.session(workspace, *steps, approve="always")
    code = await open_code(daemon, workspace)
    await code.type("first")
    await gate.reached()
    daemon.limit_files(0)
    gate.open()
    assert "its end could not be stored" in await code.until_report("error")
    daemon.limit_files()
    await frontend.snapshot(session_id)
    await code.type("second")
    shown = await code.until_shown("And on.\n── completed")
    assert shown.count("── interrupted") == 1


async def test_a_log_that_was_put_back_is_shown_from_its_first_event(
    open_code: Opening, new_daemon: Callable[..., Daemon], workspace: Path
) -> None:
    daemon = new_daemon()
    daemon.start()
    daemon.play("main", text("one"), text("two"))
    code = await open_code(daemon, workspace)
    await code.type("first")
    await code.until_shown("one\n── completed")
    await daemon.terminate()
    await code.until_shown("reconnecting")
    kept = (daemon.places.state / LOG_FILE).read_bytes()
    daemon.start()
    await code.type("second")
    await code.until_shown("two\n── completed")
    await daemon.terminate()
    put_back(daemon, kept)
    daemon.start()
    await code.until_gone("second")
    await code.until_shown("first\none\n── completed")


async def test_a_missing_program_is_said_and_the_message_comes_back(
    open_code: Opening, daemon: Daemon, workspace: Path
) -> None:
    for command, problem in (("/nowhere/tiller", "can't be run"), ("false", "has ended (1)")):
        code = await open_code(daemon, workspace, [command])
        assert problem in await code.until_report("error")  # as there are no sessions to show
        await code.type("go")
        await code.until_shown("> go")
        assert problem in await code.until_report("error", 2)


def test_the_page_may_run_one_script_and_load_nothing(built: Path) -> None:
    source = (EXTENSION / "src" / "view.ts").read_text(encoding="utf-8")
    policy = re.search(r"const policy = `(.*)`", source)
    assert policy
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe" not in policy[1]
    for file in (EXTENSION / "src").rglob("*.ts"):
        assert not re.search("innerHTML|outerHTML|insertAdjacent|eval\\(", file.read_text()), file


class Functions:
    """Functions of the extension that need nothing else, in a process of their own."""

    def __init__(self, built: Path) -> None:
        self._process = subprocess.Popen(
            ["node", built / "pure.mjs"], cwd=built, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __call__(self, *line: object) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def functions(built: Path) -> Iterator[Functions]:
    functions = Functions(built)
    yield functions
    functions.close()


@pytest.mark.nightly
def test_no_character_that_the_command_line_would_escape_is_shown(functions: Functions) -> None:
    known = known_characters()
    for safe, name in ((sanitized, "sanitized"), (verbatim, "verbatim")):
        # Behind a letter each, so that marks are alike to both.
        shown = functions(name, "\n".join(f"a{one}b" for one in known if one not in "\n\r"))
        pairs = zip([one for one in known if one not in "\n\r"], shown.split("\n"), strict=True)
        left = {f"U+{ord(one):04X}" for one, said in pairs if safe(f"a{one}b") != said}
        assert not left, name


def test_only_documents_of_the_workspace_are_lent(functions: Functions, tmp_path: Path) -> None:
    (workspace := tmp_path / "w").mkdir()
    (workspace / "greeting.txt").write_text("hello\n")
    opened = made_to_lend(workspace)
    for path, is_lent in LENT:
        told = functions("unsaved", path.format(w=workspace), str(workspace), opened)
        assert (told == "not saved") is is_lent, path


LINES = st.lists(st.sampled_from(["a", "b", "", "-- c", "++ d", "\\", "@@ -1 +1 @@"]), max_size=12)


@settings(deadline=None)  # another process answers
@given(before=LINES, after=LINES, ends=st.tuples(st.booleans(), st.booleans()))
def test_the_two_sides_of_a_diff_are_the_file_before_and_after(
    functions: Functions, before: list[str], after: list[str], ends: tuple[bool, bool]
) -> None:
    old, new = (
        "\n".join(side) + "\n" * end for side, end in zip((before, after), ends, strict=True)
    )
    diff = unified_diff(old, new, "src/a b.txt")
    if not diff:
        return
    sides = [{"path": "src/a b.txt", "before": old, "after": new}]
    assert functions("sides", diff, "before", old) == sides
    assert functions("sides", diff, "after", new) == sides
    (parts,) = functions("sides", diff, "before", None)
    for line in diff.splitlines()[2:]:
        if line.startswith("-"):
            assert line[1:] in parts["before"]
        if line.startswith("+"):
            assert line[1:] in parts["after"]
    header = "\n".join(diff.split("\n")[:3])
    assert functions("sides", header, "before", old) is None


@settings(deadline=None)  # another process answers
@given(bodies=st.lists(st.lists(st.sampled_from("abc"), max_size=6), min_size=1, max_size=4))
def test_a_block_that_has_changed_looks_like_one_that_is_new(
    functions: Functions, bodies: list[list[str]]
) -> None:
    assert functions("rows", *bodies) == bodies[-1]


MARKDOWN = """\
# Done

I **changed** `a < b` and *more*:
see [the page](https://x.invalid/a_b), not [this](javascript:alert(1)) or [that](command:x "t").

3. one
   - two

     > quoted

```py
if a < b:
```

| a | b |
|---|---|
| 1 | ~~2~~ |

<img src=x onerror=alert(1)> ![alt](http://x.invalid/i.png) &#x202e;&lt;b&gt; \\*
***
"""


def test_markdown_becomes_elements_and_html_stays_text(functions: Functions) -> None:
    assert functions("markdown", MARKDOWN) == [
        ["h1", "Done"],
        [
            *("p", "I ", ["strong", "changed"], " ", ["code", "a < b"], " and ", ["em", "more"]),
            *(":", ["br"], "see ", ["a href=https://x.invalid/a_b", "the page"]),
            *(", not [this](javascript:alert(1)) or ", ["span", "that"], "."),
        ],
        [
            "ol start=3",
            ["li", "one", ["ul", ["li", ["p", "two"], ["blockquote", ["p", "quoted"]]]]],
        ],
        ["pre", ["code", "if a < b:\n"]],
        [
            "table",
            ["thead", ["tr", ["th", "a"], ["th", "b"]]],
            ["tbody", ["tr", ["td", "1"], ["td", ["s", "2"]]]],
        ],
        [
            *("p", "<img src=x onerror=alert(1)> ", "alt (http://x.invalid/i.png)"),
            " ⟨U+202E⟩<b> *",
        ],
        ["hr"],
    ]


@settings(deadline=None, max_examples=30)  # another process answers
@given(cuts=st.lists(st.integers(0, len(MARKDOWN)), max_size=8))
def test_markdown_that_has_grown_looks_like_one_that_is_new(
    functions: Functions, cuts: list[int]
) -> None:
    parts = [MARKDOWN[:cut] for cut in cuts] + [MARKDOWN]
    assert functions("markdown", *parts) == functions("markdown", MARKDOWN)


@pytest.mark.parametrize(
    "text",
    [
        ">" * 20_000 + "a",
        "_a_" * 10_000,
        "[" * 10_000,
        "![](" * 10_000,
        "- " * 5_000,
        "<a " * 9_999,
    ],
    ids=["quotes", "emphasis", "brackets", "images", "lists", "tags"],
)
def test_no_text_stops_the_page(functions: Functions, text: str) -> None:
    assert str(functions("markdown", text)).count("a") <= len(text)


def test_a_diff_whose_middle_is_left_out_has_no_sides(functions: Functions) -> None:
    cut = truncate(unified_diff("", "line\n" * 100_000, "long.txt"))
    assert len(cut) < 100_000
    assert functions("sides", cut, "before", "") is None


def test_the_lock_file_names_no_registry() -> None:
    assert "http" not in (EXTENSION / "package-lock.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "scripts", [["build"], pytest.param(["check", "build"], marks=pytest.mark.nightly)]
)
async def test_the_bundle_is_typed_and_runs(
    built: Path, daemon: Daemon, workspace: Path, tmp_path: Path, scripts: list[str]
) -> None:
    """Checking the types takes eight seconds, so they are checked nightly only."""
    package = tmp_path / "client" / "editors" / "vscode"
    install(EXTENSION, package)
    shutil.copytree(EXTENSION.parents[1] / "typescript" / "src", tmp_path / "client/typescript/src")
    for script in scripts:
        done = await trio.run_process(
            ["npm", "run", script], cwd=package, capture_stdout=True, check=False
        )
        assert done.returncode == 0, done.stdout.decode()
    daemon.play("main", text("a greeting"))
    async with a_code(
        daemon, built, workspace, extension=package / "dist" / "extension.js"
    ) as code:
        await code.type("go")
        await code.until_shown("a greeting\n── completed")
