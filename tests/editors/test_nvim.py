"""The Neovim plugin as a user has it: its commands and keys, and what its buffers show."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.gates import Gate
from e2e.words import bash, calls, calls_in, hang, read, said_in, text
from editors.conftest import Opening
from editors.logs import put_back
from editors.neovim import CHAT, Neovim, NeovimTerminal
from editors.words import (
    ASK,
    EDIT,
    EDIT_AGAIN,
    ENVRC,
    HOSTILE_COMMAND,
    HOSTILE_COMMAND_SHOWN,
    LENT,
    MARKS,
    known_characters,
    made_to_lend,
)
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_client.rendering.text import sanitized, verbatim
from tiller_daemon.models.scripted import CallPart, ReasoningPart, ScriptStep, TextPart
from tiller_protocol.answers import RulesResult
from tiller_protocol.lending import LentServer, SessionLend
from tiller_protocol.ops import Replay, RulesList
from tiller_protocol.places import LOG_FILE

pytestmark = pytest.mark.skipif(not shutil.which("nvim"), reason="no nvim: apt install neovim")

NOTATION = {"⟨", "␠", *map(chr, range(0x2400, 0x2422))}
"""Characters that stand for escaped ones."""


async def opened(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path, *steps: ScriptStep
) -> tuple[Neovim, str]:
    """Neovim with the chat of a new session, which plays a script and asks."""
    session_id = await frontend.session(workspace, *steps, approve="ask")
    neovim = await open_neovim(daemon, workspace)
    await neovim.command("Tiller")
    await neovim.until("require('tiller').is_live")
    return neovim, session_id


async def test_an_edit_is_approved_with_its_diff_and_the_buffer_is_reloaded(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    thinks = ScriptStep(parts=(ReasoningPart("Hm."), TextPart("Let me see."), read("greeting.txt")))
    neovim, _ = await opened(
        open_neovim, daemon, frontend, workspace, thinks, calls(EDIT), text("All done.", 3)
    )
    await neovim.command("topleft split greeting.txt")
    await neovim.command("Tiller greet shorter")
    await neovim.until_shown("gy once")
    shown = await neovim.chat()
    assert "» greet shorter\n∴ Hm.\nLet me see.\n● read greeting.txt ok" in shown
    assert "? Edit greeting.txt\n" in shown
    assert "    -hello\n    +hi\n" in shown
    assert "tiller asks: Edit greeting.txt" in await neovim.said()
    await neovim.go_to("? Edit")
    await neovim.keys("gd")
    assert await neovim.lua("return vim.bo.filetype") == "diff"
    diff = await neovim.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, false)")
    assert diff[-2:] == ["-hello", "+hi"]
    await neovim.keys("gy")
    await neovim.until_shown("── completed")
    assert (workspace / "greeting.txt").read_text() == "hi\n"
    buffer = "vim.fn.bufnr('greeting.txt')"
    await neovim.until(f"vim.api.nvim_buf_get_lines({buffer}, 0, 1, false)[1] == 'hi'")
    shown = await neovim.chat()
    assert "✓ allowed once by neovim" in shown
    assert "All done.\n── completed" in shown
    assert await neovim.chat_again() == shown


async def test_a_request_is_looked_at_and_answered_from_the_prompt_where_the_chat_opens(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    steps = (calls(read("greeting.txt")), calls(EDIT), text("done"))
    await frontend.session(workspace, *steps, approve="ask")
    neovim = await open_neovim(daemon, workspace)
    await neovim.command("edit greeting.txt")
    await neovim.command("set columns=200")
    in_prompt = "return vim.api.nvim_get_current_buf() == require('tiller').chat.prompt"
    await neovim.command("Tiller")
    await neovim.until("require('tiller').is_live")
    assert await neovim.lua(in_prompt)
    await neovim.command("Tiller greet shorter")
    await neovim.until_shown("gy once")
    assert await neovim.lua(in_prompt)
    await neovim.keys("gd")
    assert await neovim.lua("return vim.bo.filetype") == "diff"
    await neovim.command("quit")
    await neovim.command("Tiller")
    assert await neovim.lua(in_prompt)
    await neovim.keys("gy")
    await neovim.until_shown("done\n── completed")
    assert (workspace / "greeting.txt").read_text() == "hi\n"


async def test_a_message_steers_the_running_turn_or_waits_for_its_end(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    steps = (calls(bash(gate.command)), text("seen"), text("after it"))
    neovim, session_id = await opened(open_neovim, daemon, frontend, workspace, *steps)
    await neovim.command("TillerSend go")
    await gate.reached()
    await neovim.command("TillerSteer leave the tests")
    await neovim.until_shown("⇢ leave the tests")
    await neovim.command("TillerQueue then the docs")
    await neovim.until_shown("⧗ then the docs")
    gate.open()
    await neovim.until_shown("after it\n── completed")
    shown = await neovim.chat()
    assert "» leave the tests (steering)\nseen" in shown
    assert "» then the docs (queued)\nafter it" in shown
    assert "⧗" not in shown
    assert await neovim.chat_again() == shown
    snapshot = await frontend.snapshot(session_id)
    assert said_in(tuple(snapshot.items)) == ["go", "leave the tests", "then the docs"]


async def test_what_was_refused_is_back_in_the_prompt(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    neovim, _ = await opened(open_neovim, daemon, frontend, workspace, text("done"))
    await neovim.command("TillerSteer this way")
    await neovim.until("#said > 0")
    prompt = "vim.api.nvim_buf_get_lines(require('tiller').chat.prompt, 0, -1, false)"
    assert await neovim.lua(f"return {prompt}") == ["this way"]
    await neovim.lua("vim.api.nvim_set_current_buf(require('tiller').chat.prompt)")
    await neovim.keys("<CR>")
    await neovim.until_shown("» this way\ndone\n── completed")
    assert await neovim.lua(f"return {prompt}") == [""]


async def test_an_interrupt_ends_the_turn(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    neovim, _ = await opened(open_neovim, daemon, frontend, workspace, hang("I think"))
    await neovim.command("Tiller go")
    await neovim.until_shown("I think")
    await neovim.command("TillerInterrupt")
    await neovim.until_shown("── interrupted")


async def test_lines_of_a_buffer_go_with_a_question_as_they_are_there(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    neovim, session_id = await opened(open_neovim, daemon, frontend, workspace, text("a greeting"))
    await neovim.command("topleft split greeting.txt")
    await neovim.command("call append(1, ['not saved', 'left out'])")
    await neovim.command("1,2TillerSend what is this?")
    await neovim.until_shown("── completed")
    (asked,) = said_in(tuple((await frontend.snapshot(session_id)).items))
    assert asked.startswith("what is this?")
    assert "greeting.txt, lines 1 to 2:\nhello\nnot saved\n" in asked
    assert "left out" not in asked
    assert "»" in await neovim.chat()


async def test_a_buffer_that_is_not_saved_is_read_and_overwritten_only_when_it_is(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    steps = (calls(read("greeting.txt")), calls(EDIT), text("save it"), calls(EDIT), text("done"))
    session_id = await frontend.session(workspace, *steps, approve="ask")
    await frontend.must(Replay(session_id, 0, follower="other"))
    neovim = await open_neovim(daemon, workspace)
    await neovim.command("Tiller")
    await neovim.until("require('tiller').is_live")
    await neovim.until("vim.b[require('tiller').chat.buffer].tiller_status:find('also: e2e')")
    await neovim.command("topleft split greeting.txt")
    await neovim.command("call setline(1, 'hello, not saved')")
    await neovim.command("Tiller go")
    await neovim.until_shown("save it\n── completed")
    first, refused = calls_in(daemon.requests(session_id)[-1].items)
    assert "\thello, not saved\n" in first.output
    assert "was left as it is" in refused.output
    assert (workspace / "greeting.txt").read_text() == "hello\n"
    await neovim.command("wall")
    await neovim.command("Tiller again")
    await neovim.until_shown("gy once")
    await neovim.command("TillerAnswer once")
    await neovim.until_shown("done\n── completed")
    assert (workspace / "greeting.txt").read_text() == "hi, not saved\n"
    servers = (LentServer("n", url="http://127.0.0.1:9/"),)
    for number in range(7):
        await frontend.must(SessionLend(session_id, str(number), servers))
    assert (await frontend.refused(SessionLend(session_id, "7", servers))).code == "overloaded"
    await neovim.quit()
    await frontend.must(SessionLend(session_id, "8", servers))


async def test_only_buffers_of_the_workspace_are_lent(
    open_neovim: Opening, daemon: Daemon, workspace: Path
) -> None:
    neovim = await open_neovim(daemon, workspace)
    for path in made_to_lend(workspace):
        await neovim.command(f"edit {path}")
        await neovim.command("call setline(1, 'not saved')")
        await neovim.command("set hidden")
    ask = (
        "local path, directory = ...\n"
        "local rpc = { tell = function(_, op) told = op.text or false end }\n"
        "require('tiller.lending').answer(rpc, { question_id = 'q', path = path }, directory)\n"
        "return told"
    )
    for path, is_lent in LENT:
        told = await neovim.lua(ask, path.format(w=workspace), str(workspace))
        assert (told == "not saved\n") is is_lent, path


async def test_a_killed_daemon_is_followed_again_with_nothing_lost_or_doubled(
    open_neovim: Opening, new_daemon: Callable[..., Daemon], workspace: Path
) -> None:
    daemon = new_daemon()
    daemon.start()
    look = calls(read("greeting.txt"))
    daemon.play("main", text("one"), hang("in the middle"), look, text("three"))
    neovim = await open_neovim(daemon, workspace)
    await neovim.command("Tiller first")
    await neovim.until_shown("one\n── completed")
    await neovim.command("Tiller second")
    await neovim.until_shown("in the middle")
    daemon.kill9()  # `tiller rpc` starts it again
    await neovim.until_shown("── interrupted")
    await neovim.lua("vim.loop.kill(vim.fn.jobpid(require('tiller').rpc.job), 9)")
    await neovim.command("topleft split greeting.txt")
    await neovim.command("call setline(1, 'not saved')")
    await neovim.command("Tiller third")
    await neovim.until_shown("three\n── completed")
    shown = await neovim.chat()
    session_id = await neovim.lua("return require('tiller').session.id")
    (call,) = calls_in(daemon.requests(session_id)[-1].items)
    assert "\tnot saved\n" in call.output, "it is lent to the new daemon"
    for words in ("» first\none\n", "» second\nin the middle", "» third\n", "three\n── completed"):
        assert shown.count(words) == 1, shown
    assert await neovim.chat_again() == shown
    await neovim.lua("require('tiller').rpc:submit({ type = 'shutdown' })")
    await neovim.until("vim.b[require('tiller').chat.buffer].tiller_status:find('reconnecting')")


@pytest.mark.nightly
async def test_a_log_that_was_put_back_is_shown_from_its_first_event(
    open_neovim: Opening, new_daemon: Callable[..., Daemon], workspace: Path
) -> None:
    daemon = new_daemon()
    daemon.start()
    daemon.play("main", text("one"), text("two"), text("three"))
    path = daemon.places.state / LOG_FILE
    neovim = await open_neovim(daemon, workspace)
    await neovim.command("Tiller first")
    await neovim.until_shown("one\n── completed")
    await daemon.terminate()
    shorter = path.read_bytes()
    daemon.start()
    for words, answer in (("second", "two"), ("more", "three")):
        await neovim.command(f"Tiller {words}")
        await neovim.until_shown(f"» {words}\n{answer}\n── completed")
    await daemon.terminate()
    longer = path.read_bytes()
    put_back(daemon, shorter)
    daemon.start()  # `tiller rpc` sees that the log ends before what it had sent
    await neovim.until(f"not ({CHAT}):find('second', 1, true)")
    await neovim.command("Tiller third")
    await neovim.until_shown("» third\ntwo\n── completed")
    # A new `tiller rpc` knows nothing of the old log: the plugin itself sees that it is another.
    await neovim.lua("require('tiller').rpc:stop()")
    await daemon.terminate()
    put_back(daemon, longer, log_id="another")
    daemon.start()
    await neovim.lua("require('tiller').rpc:start()")
    await neovim.until_shown("» more\nthree\n── completed")
    shown = await neovim.chat()
    assert "third" not in shown
    assert shown.count("» ") == 3, shown
    assert await neovim.chat_again() == shown


async def test_the_screen_of_a_terminal_shows_the_chat_and_takes_keys(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    steps = (calls(read("greeting.txt")), calls(EDIT), text("All done."))
    await frontend.session(workspace, *steps, approve="ask")
    with NeovimTerminal(daemon, workspace) as terminal:
        terminal.type(":Tiller greet\r")
        terminal.wait_for("gy once")
        rows = terminal.rows()
        assert any(row.startswith("? Edit greeting.txt") for row in rows), rows
        assert "    +hi" in rows
        assert any(row.startswith("prompt: Enter sends") for row in rows), rows
        terminal.type("\x17kgy")  # to the chat, allow
        terminal.wait_for("── completed")
        rows = terminal.rows()
        assert "» greet" in rows
        assert any(row.startswith("● edit greeting.txt ok") for row in rows), rows
        assert "All done." in rows


async def test_enter_goes_to_a_changed_place_and_the_quickfix_list_has_them(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    lines = [f"line {number}" for number in range(1, 41)]
    (workspace / "long [1].txt").write_text("\n".join(lines) + "\n")
    steps = (
        calls(read("long [1].txt")),
        calls(CallPart("edit", arguments={"path": "long [1].txt", "old": "line 30", "new": "30"})),
        text("done"),
    )
    await frontend.session(workspace, *steps)
    neovim = await open_neovim(daemon, workspace)
    await neovim.command("Tiller go")
    await neovim.until_shown("── completed")
    await neovim.go_to("+30")
    await neovim.keys("<CR>")
    place = await neovim.lua(
        "return { vim.fn.expand('%:t'), vim.fn.line('.'), vim.fn.getline('.') }"
    )
    assert place == ["long [1].txt", 30, "30"]
    await neovim.go_to("● edit")
    await neovim.keys("gf")
    assert await neovim.lua("return vim.fn.expand('%:t')") == "long [1].txt"
    await neovim.command("TillerChanges")
    await neovim.until("#vim.fn.getqflist() > 0")
    (entry,) = await neovim.lua("return vim.fn.getqflist()")
    assert entry["lnum"] == 27, "the hunk begins three lines before the change"


async def test_output_is_folded_and_diffs_and_failures_are_open(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    steps = (calls(bash("seq 3"), bash("echo no; exit 4")), text("done"))
    await frontend.session(workspace, *steps)
    neovim = await open_neovim(daemon, workspace)
    await neovim.command("Tiller go")
    await neovim.until_shown("── completed")
    await neovim.go_to("● bash seq 3")
    assert await neovim.lua("return vim.fn.foldclosedend('.') - vim.fn.line('.')") == 3
    await neovim.go_to("exit 4")
    assert await neovim.lua("return vim.fn.foldclosed('.')") == -1


async def test_what_is_asked_is_shown_verbatim_and_a_rejection_has_a_reason(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    steps = (calls(bash(HOSTILE_COMMAND)), calls(bash("curl y.invalid")), text("\x1b[31mred\u200b"))
    neovim, session_id = await opened(open_neovim, daemon, frontend, workspace, *steps)
    await neovim.command("Tiller go")
    await neovim.until_shown("gr reject")
    shown = await neovim.chat()
    assert HOSTILE_COMMAND_SHOWN in shown
    assert not {"\x1b", "\u202e"} & set(shown)
    await neovim.command("TillerAnswer reject not from there")
    await neovim.until_shown("✗ rejected by neovim: not from there")
    await neovim.until_shown("? Run curl y.invalid")
    await neovim.go_to("? Run curl y")
    await neovim.keys("gR")
    await neovim.until_shown("── blocked")
    assert "not from there" in str((await frontend.snapshot(session_id)).items)


async def test_what_is_asked_names_all_permissions(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    steps = (calls(ENVRC), text("never"))
    neovim, _ = await opened(open_neovim, daemon, frontend, workspace, *steps)
    await neovim.command("Tiller go")
    await neovim.until_shown("gr reject")
    shown = await neovim.chat()
    assert "? Write files that may make other programs run something: .envrc" in shown
    assert "! needs several permissions: protected_path, write\n" in shown
    assert "+a⟨U+202E⟩b⟨U+00A0⟩␠" in shown


@pytest.mark.parametrize("key", ["ga", "gh"])
async def test_what_is_always_allowed_is_asked_once(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path, key: str
) -> None:
    steps = (calls(read("greeting.txt")), calls(EDIT), calls(EDIT_AGAIN), text("done"))
    neovim, session_id = await opened(open_neovim, daemon, frontend, workspace, *steps)
    await neovim.command("Tiller go")
    await neovim.until_shown("ga always")
    assert f"“always here” allows it in every session of {workspace}" in await neovim.chat()
    await neovim.go_to("? Edit")
    await neovim.keys(key)
    await neovim.until_shown("done\n── completed")
    shown = await neovim.chat()
    said = {"ga": "✓ allowed for the session", "gh": "✓ allowed always here"}
    assert f"{said[key]} by neovim" in shown
    assert shown.count("? Edit") == 1
    assert (workspace / "greeting.txt").read_text() == "hey\n"
    listed = await frontend.must(RulesList(workspace=str(workspace), session_id=session_id))
    assert isinstance(listed, RulesResult)
    assert [one.workspace for one in listed.rules] == ["" if key == "ga" else str(workspace)]


async def test_a_question_is_answered(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    neovim, _ = await opened(open_neovim, daemon, frontend, workspace, calls(ASK), text("fine"))
    await neovim.lua("vim.ui.select = function(items, _, chosen) chosen(items[2], 2) end")
    await neovim.command("Tiller go")
    await neovim.until_shown("gy answer")
    assert "1. tabs\n    2. blanks" in await neovim.chat()
    await neovim.go_to("? Tabs")
    await neovim.keys("gy")
    await neovim.until_shown("✓ answered by neovim: blanks")
    await neovim.until_shown("fine\n── completed")


async def test_sessions_are_chosen_from_a_list_or_by_the_end_of_their_id(
    open_neovim: Opening, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    first = await frontend.session(workspace, text("of the first"))
    await frontend.say(first)
    await frontend.turn_ended(first)
    neovim, second = await opened(open_neovim, daemon, frontend, workspace, text("of the second"))
    assert await neovim.lua("return require('tiller').session.id") == second
    await neovim.command(f"TillerAttach {first[-8:].lower()}")
    await neovim.until_shown("of the first\n── completed")
    choose_second = (
        "vim.ui.select = function(items, options, chosen)\n"
        "  for _, one in ipairs(items) do\n"
        f"    if one.session_id == '{second}' then options.format_item(one); chosen(one) end\n"
        "  end\n"
        "end"
    )
    await neovim.lua(choose_second)
    await neovim.command("TillerSessions")
    await neovim.until(f"require('tiller').session.id == '{second}'")
    await neovim.command("Tiller go")
    await neovim.until_shown("of the second\n── completed")
    assert "of the first" not in await neovim.chat()


async def test_checkhealth_finds_the_program_and_the_daemon(
    open_neovim: Opening, daemon: Daemon, workspace: Path
) -> None:
    neovim = await open_neovim(daemon, workspace)
    await neovim.command("checkhealth tiller")
    shown = await neovim.lua("return table.concat(vim.fn.getline(1, '$'), '\\n')")
    assert "Neovim is 0.7 or newer" in shown
    assert "the daemon answers" in shown
    assert "ERROR" not in shown


async def test_a_missing_program_is_said_and_the_prompt_is_kept(
    open_neovim: Opening, daemon: Daemon, workspace: Path
) -> None:
    neovim = await open_neovim(daemon, workspace)
    for command, problem in (("/nowhere/tiller", "can't be run"), ("false", "ended with status 1")):
        await neovim.lua(f"require('tiller').setup({{ command = '{command}' }}); said = {{}}")
        await neovim.lua("require('tiller').rpc = nil")
        await neovim.command("Tiller go")
        await neovim.until("#said > 0")
        assert problem in "".join(await neovim.said())
        prompt = "vim.api.nvim_buf_get_lines(require('tiller').chat.prompt, 0, 1, false)"
        assert await neovim.lua(f"return {prompt}") == ["go"]


@pytest.mark.nightly
async def test_no_character_that_the_command_line_would_escape_reaches_a_buffer(
    open_neovim: Opening, daemon: Daemon, workspace: Path
) -> None:
    neovim = await open_neovim(daemon, workspace)
    for mark in MARKS:
        shown = await neovim.lua("return require('tiller.text').verbatim(...)", f"a{mark * 9}b")
        assert mark not in shown
        assert shown.startswith("a⟨U+")
    known = known_characters()
    everything = "".join(known)
    for safe, name in ((sanitized, "sanitized"), (verbatim, "verbatim")):
        shown = set(await neovim.lua(f"return require('tiller.text').{name}(...)", everything))
        escaped = {one for one in known if f"a{one}b" != safe(f"a{one}b")}
        left = {f"U+{ord(one):04X}" for one in shown & escaped - NOTATION}
        assert not left, name
