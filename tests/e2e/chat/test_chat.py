"""What a person sees and types in `tiller chat`, on a real terminal with the real daemon."""

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, hang, read, said_in, text, write
from support.chat import FOCUSED, ChatTerminal
from support.chat_chaos import play_disturbed
from support.daemon import Daemon
from support.frontend import Frontend
from support.tmux import TMUX, TmuxChat
from tiller_client.chat.rows import PROMPT
from tiller_client.connecting.runtime import lock_holder
from tiller_daemon.models.scripted import Failure, ScriptStep
from tiller_protocol.answers import ReplayResult, SessionListResult
from tiller_protocol.events import SessionSeen
from tiller_protocol.items import UserMessage
from tiller_protocol.ops import Answer, Replay, Revert, SessionList
from tiller_protocol.snapshot import SessionSummary

Opens = Callable[..., ChatTerminal]

ROUNDS = 6

LINES = 1_000
"""Lines of a pasted text: many reads of the terminal."""

READY = "write a message"
BUSY = "steer with Enter"
SHIFT_TAB = "\x1b[Z"
FOCUS_LOST = "\x1b[O"
ANSWERABLE = "a letter chooses, Enter answers"


async def newest(frontend: Frontend) -> SessionSummary:
    """Return the session with the latest activity."""
    listed = await frontend.must(SessionList(limit=1))
    assert isinstance(listed, SessionListResult)
    return listed.sessions[0]


async def write_each(chat: ChatTerminal, *texts: str) -> None:
    """Write texts, each after the previous text's turn has ended."""
    for one in texts:
        chat.press(f"{one}\r")
        await chat.shows(f"» {one}")
        await chat.until(lambda: READY in chat.rows[chat.cursor[0]])


async def test_a_turn_is_written_read_and_stays_in_the_scrollback(
    opens: Opens, daemon: Daemon
) -> None:
    model = daemon.script(calls(read("greeting.txt")), text("All is well. " * 60, 80))
    chat = opens("-m", model)
    await chat.shows(READY)
    chat.press("say something\r")
    await chat.shows("say something", "read greeting.txt", "completed", READY)
    assert " ".join(chat.text.split()).count("All is well.") == 60
    assert "\x1b[?1049h" not in chat.written, "it is no full screen"
    chat.press("\x04")
    assert await chat.end() == 0
    assert "to return: tiller chat" in chat.text
    assert not any(row.startswith((PROMPT, model.rpartition("/")[2])) for row in chat.rows), (
        "no live part is left"
    )


async def test_a_session_counts_as_seen_once_its_end_is_on_a_screen_that_has_the_focus(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    chat = opens("-m", daemon.script(always("Done.")))
    await chat.shows(READY)
    await chat.until(lambda: "\x1b[?1004h" in chat.written)
    for turn in (1, 2):
        chat.press(f"{FOCUS_LOST}go\r")
        await chat.until(lambda turn=turn: chat.text.count("■ completed") == turn)
        assert (await newest(frontend)).unseen
    session_id = (await newest(frontend)).session_id
    frontend.follow(session_id)
    chat.press(FOCUSED)
    await frontend.until_body(session_id, SessionSeen)
    assert not (await newest(frontend)).unseen


async def test_what_streams_is_laid_out_anew_when_the_terminal_gets_narrower(
    opens: Opens, daemon: Daemon
) -> None:
    chat = opens("-m", daemon.script(hang("A line of words, which goes on " * 4 + "to its end.")))
    await chat.shows(READY)
    chat.press("say something\r")
    await chat.sees("to its end.")
    chat.resize(40, 24)
    await chat.until(lambda: "A line of words, which goes on A line\nof words" in chat.screen)
    await chat.sees("to its end.")


@pytest.mark.parametrize(
    ("columns", "hint"),
    [
        pytest.param(30, "steer with Enter, queue wit…", marks=pytest.mark.nightly),
        (20, "steer with Enter,…"),
    ],
)
async def test_a_hint_that_does_not_fit_is_cut_with_an_ellipsis(
    opens: Opens, daemon: Daemon, columns: int, hint: str
) -> None:
    chat = opens("-m", daemon.script(hang("Hanging now.")), size=(columns, 24))
    await chat.shows("write a message")
    chat.press("go\r")
    await chat.until(lambda: f"{PROMPT}{hint}" in chat.rows)
    assert chat.text == chat.text_of_a_wider_one, "no line is wider than the terminal"


async def test_a_text_that_waits_for_a_command_is_told_and_escape_ends_the_command_alone(
    opens: Opens, daemon: Daemon, workspace: Path
) -> None:
    chat = opens("-m", daemon.script(always("Linted.")))
    await chat.shows(READY)
    gate = Gate(workspace)
    chat.press(f"!{gate.command}\r")
    await gate.reached()
    chat.press("then lint\r")
    await chat.sees("your text waits until what runs now has ended")
    chat.press("\x1b")
    await chat.shows("■ interrupted", "» then lint", "Linted.", "■ completed")
    gate.close()


async def test_a_session_that_is_opened_again_says_why_its_turns_failed(
    opens: Opens, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    failed = ScriptStep(failures=(Failure("bad_request", "no such key"),), repeat=True)
    session_id = await frontend.session(workspace, failed)
    for number, words in enumerate(("one", "two"), 1):
        await frontend.say(session_id, words)
        await frontend.turn_ended(session_id, number)
    chat = opens(session_id)
    await chat.shows("» one", "no such key", "» two", READY)
    assert chat.text.count("■ failed") == 2
    assert chat.text.index("■ failed") < chat.text.index("» two")


async def test_enter_steers_and_tab_queues_while_a_turn_is_running(
    opens: Opens, daemon: Daemon, workspace: Path
) -> None:
    gate = Gate(workspace)
    model = daemon.script(calls(bash(gate.command)), text("First done."), text("Second done."))
    chat = opens("-m", model, "--approve", "always")
    await chat.shows(READY)
    chat.press("begin\r")
    await gate.reached()
    await chat.shows(BUSY)
    chat.press("also this\r")
    await chat.shows("steers: also this")
    chat.press("and then that\t")
    await chat.shows("queued: and then that")
    gate.open()
    await chat.shows("First done.", "Second done.", READY)
    shown = chat.text
    order = ("» begin", "» also this", "First done.", "» and then that", "Second done.")
    assert sorted(order, key=shown.index) == list(order)


async def test_escape_interrupts_and_again_goes_back_to_a_turn(
    opens: Opens, daemon: Daemon, workspace: Path
) -> None:
    model = daemon.script(calls(write("new.txt", "x\n")), hang("Hanging now"), always("Read."))
    chat = opens("-m", model, "--approve", "always")
    await chat.shows(READY)
    chat.press("write it\nwith care\r")
    await chat.shows("Hanging now")
    assert (workspace / "new.txt").exists()
    chat.press("\x1b")
    await chat.shows("interrupted", READY)
    chat.press("\x1b")
    await chat.shows("go back to the point before", "1. write it")
    chat.press("\r")
    await chat.shows("before this turn", "fork")
    chat.press("\r")
    await chat.shows("reverted to before “write it with care”; 1 file put back")
    assert not (workspace / "new.txt").exists()
    await chat.until(lambda: chat.editor == ["write it", "with care"])
    chat.press(" again\r")
    await chat.shows("with care again")


async def test_a_letter_and_enter_answer_and_nothing_else_does(
    opens: Opens, daemon: Daemon, workspace: Path, frontend: Frontend
) -> None:
    command = "echo out > /var/tmp/never && false"
    model = daemon.script(calls(bash(command)), text("It was not allowed."))
    chat = opens("-m", model, "--sandbox", "workspace_write", "--approve", "ask")
    await chat.shows(READY)
    chat.press("do it\r")
    await chat.shows(command, ANSWERABLE)
    chat.press("\r")  # nothing is chosen, so nothing is answered
    chat.press("yesterday")  # not only the letter, so it is text
    await chat.until(lambda: any("yesterday" in row for row in chat.rows))
    chat.press("\x15")
    await chat.shows("no, with a reason")
    chat.press("r")
    await chat.until(lambda: any(row.startswith("▸ r") for row in chat.rows))
    chat.press("\r")
    await chat.shows("type it, then Enter")
    chat.press("use another directory\r")
    await chat.shows("rejected by you: use another directory", "It was not allowed.")
    assert chat.text.count("use another directory") == 1


async def test_a_rejection_that_ends_the_turn_is_told_once(opens: Opens, daemon: Daemon) -> None:
    model = daemon.script(calls(bash("echo out > /var/tmp/never")), always("Well then."))
    chat = opens("-m", model, "--sandbox", "workspace_write", "--approve", "ask")
    await chat.shows(READY)
    chat.press("do it\r")
    await chat.shows(ANSWERABLE)
    chat.press("n\r")
    await chat.shows("✗ rejected by you", "■ blocked", "/continue")
    assert chat.text.count("rejected") == 1


@pytest.mark.skipif(TMUX is None, reason="needs tmux")
async def test_a_frame_that_got_too_high_for_the_terminal_is_drawn_at_its_bottom(
    daemon: Daemon, workspace: Path
) -> None:
    model = daemon.script(calls(bash("echo out > /var/tmp/never")), always("Well then."))
    chat = TmuxChat.start(daemon, "chat", "-C", str(workspace), "-m", model, "--approve", "ask")
    try:
        await chat.shows(READY)
        chat.press("do it\r")
        await chat.shows(ANSWERABLE)
        chat.resize(80, 6)
        await chat.until(lambda: chat.rows[-1].startswith("waits for your answer"))
        assert chat.rows[0].startswith("? Run")
    finally:
        chat.close()


async def test_what_somebody_else_answers_is_no_longer_asked_here(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    model = daemon.script(calls(bash("echo out > /var/tmp/never")), always("Well then."))
    chat = opens("-m", model, "--sandbox", "workspace_write", "--approve", "ask")
    await chat.shows(READY)
    chat.press("do it\r")
    await chat.shows(ANSWERABLE)
    session = await newest(frontend)
    await frontend.must(Answer(session.requests[0].id, "reject", "no"))
    await chat.shows("rejected by", "Well then.", READY)
    assert chat.text.count("rejected") == 1
    assert not any("no, with a reason" in row for row in chat.rows)
    chat.press("y\r")
    await chat.shows("the question is gone, so y was not sent")
    chat.press("\r")
    await chat.shows("» y")


async def test_a_large_paste_is_one_word_and_sent_whole(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    lines = "\n".join(f"line {number}" for number in range(120))
    chat.press("look at ")
    chat.paste(lines)
    await chat.shows("look at [pasted 120 lines #1]")
    chat.press("\r")
    await chat.shows("Read.", "completed")
    session = await newest(frontend)
    said = said_in(tuple((await frontend.snapshot(session.session_id)).items))
    assert said == [f"look at {lines}"]


async def test_a_new_line_is_written_without_sending(opens: Opens, daemon: Daemon) -> None:
    line = "line\n  "
    chat = opens("-m", daemon.script(hang("Hanging now"), always("Read.")))

    async def write_lines() -> None:
        for key in ("\n", "\\\r", "\x1b\r", "\x1b[13;2u", "\x1b[27;2;13~"):
            chat.press("line")
            await chat.until(lambda: chat.rows[chat.cursor[0]].endswith("line"))
            chat.press(key)
            await chat.until(lambda: chat.rows[chat.cursor[0]] == "")
        chat.press("end")

    await chat.shows(READY)
    await write_lines()
    chat.press("\r")
    await chat.shows(f"» {line * 5}end", "Hanging now")
    await write_lines()  # the same while a turn is running
    await chat.until(lambda: f"{PROMPT}{line * 5}end" in chat.screen)


async def test_commands_complete_and_an_unknown_one_is_refused(
    opens: Opens, daemon: Daemon
) -> None:
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    chat.press("/modle x\r")
    await chat.shows("there is no command /modle; did you mean /model?")
    chat.press("\x15/ren")
    await chat.shows("/rename  give the session a title")
    chat.press("\tA new name\r")
    await chat.until(lambda: "A new name · tiller" in chat.written)


async def test_the_users_own_command_runs(opens: Opens, daemon: Daemon) -> None:
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    chat.press("!cat greeting.txt\r")
    await chat.shows("bash cat greeting.txt", "hello", "completed")


async def test_up_brings_back_what_was_written_and_ctrl_r_searches_it(
    opens: Opens, daemon: Daemon
) -> None:
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    await write_each(chat, "the first thing", "another matter")
    chat.press("\x1b[A\x1b[A")
    await chat.until(lambda: "the first thing" in chat.rows[chat.cursor[0]])
    chat.press("\x15\x12")
    await chat.shows("written before", "▸ another matter")
    chat.press("thing")
    await chat.shows("▸ the first thing")
    chat.press("\r")
    await chat.until(lambda: "the first thing" in chat.rows[chat.cursor[0]])


@pytest.mark.parametrize(
    ("what", "then"),
    [
        ("move to", ["queued: second", "queued: first"]),
        ("remove", ["queued: first"]),
        ("send now", ["steers: second", "queued: first"]),
    ],
)
async def test_what_is_queued_is_moved_removed_or_sent_now(
    opens: Opens, daemon: Daemon, what: str, then: list[str]
) -> None:
    chat = opens("-m", daemon.script(hang("Hanging now")))
    await chat.shows(READY)
    chat.press("go\r")
    await chat.shows("Hanging now")
    for one in ("first", "second"):
        chat.press(f"{one}\t")
        await chat.shows(f"queued: {one}")
    chat.press("\x1bqsecond")
    await chat.sees("▸ second")
    chat.press(f"\r{what}")
    await chat.sees(f"▸ {what}")
    chat.press("\r")
    await chat.until(lambda: [row[4:] for row in chat.rows if row.startswith("  ◷ ")] == then)


async def test_what_was_written_in_another_session_is_in_the_history(
    opens: Opens, daemon: Daemon
) -> None:
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    await write_each(chat, "a thing of an earlier session")
    other = opens("-m", daemon.script(always("Read.")))
    await other.shows(READY)
    other.press("\x12earlier")  # perhaps before the history is loaded
    await other.shows("▸ a thing of an earlier session")


async def test_a_message_that_can_not_be_sent_comes_back_to_the_editor(
    opens: Opens, daemon: Daemon
) -> None:
    chat = opens("-m", daemon.script(hang("Hanging now")))
    await chat.shows(READY)
    chat.press("go\r")
    await chat.shows("Hanging now")
    chat.press("!ls\r")
    await chat.shows("not sent: ")
    assert f"{PROMPT}!ls" in chat.rows


async def test_what_is_taken_out_of_the_queue_replaces_no_text_for_good(
    opens: Opens, daemon: Daemon
) -> None:
    chat = opens("-m", daemon.script(hang("Hanging now")))
    await chat.shows(READY)
    chat.press("go\r")
    await chat.shows("Hanging now")
    chat.press("queued before\t")
    await chat.shows("queued: queued before")
    chat.press("half a sentence\x1bq")
    await chat.shows("▸ queued before")
    chat.press("\r\r")
    await chat.until(lambda: chat.rows[chat.cursor[0]] == f"{PROMPT}queued before")
    chat.press("\x1b[A")
    await chat.until(lambda: chat.rows[chat.cursor[0]] == f"{PROMPT}half a sentence")


async def test_a_menu_shows_what_there_is_now(opens: Opens, daemon: Daemon) -> None:
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY, "build")
    agents = daemon.places.config / "agents"
    agents.mkdir()
    (agents / "new.md").write_text("---\ndescription: came later\n---\nYou help.\n")
    chat.press("/agent\r")
    await chat.shows("came later")


async def test_a_session_can_be_read_after_its_directory_is_gone(
    opens: Opens, daemon: Daemon, workspace: Path, frontend: Frontend
) -> None:
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    await write_each(chat, "say it")
    shutil.rmtree(workspace)
    chat = opens((await newest(frontend)).session_id)
    await chat.shows(READY)
    chat.press("\x1bm")
    await chat.shows("The workspace")
    chat.press("!ls\r")
    await chat.shows("» say it", f"{PROMPT}!ls", "not sent")


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.nightly
async def test_nothing_typed_is_lost_while_everything_is_disturbed(
    new_daemon: Callable[[], Daemon], workspace: Path, seed: int
) -> None:
    daemon = new_daemon()
    daemon.start()
    await play_disturbed(daemon, workspace, seed, ROUNDS)


@pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.nightly)])
async def test_nothing_typed_is_lost_when_the_daemon_is_killed(
    opens: Opens, new_daemon: Callable[[], Daemon], kills: int
) -> None:
    daemon = new_daemon()
    daemon.start()
    chat = opens("-m", daemon.script(always("It is here.")), daemon=daemon)
    await chat.shows(READY)
    daemon.kill9()
    for number in range(kills):
        chat.press(f"message {number} begins")
        await chat.shows(f"message {number} begins")
        if pid := lock_holder(daemon.places.runtime):  # the chat has started the daemon
            with suppress(ProcessLookupError):  # the daemon was not needed and has ended
                os.kill(pid, signal.SIGKILL)
        chat.press(" and ends\r")
        await chat.shows(f"» message {number} begins and ends")
        await chat.until(lambda: READY in chat.rows[chat.cursor[0]])
    assert chat.text.count("It is here.") == chat.text.count("■") == kills
    chat.press("\x04")
    assert await chat.end() == 0
    if pid := lock_holder(daemon.places.runtime):
        os.kill(pid, signal.SIGTERM)


async def test_a_daemon_that_was_stopped_is_said_and_awaited(
    opens: Opens, new_daemon: Callable[[], Daemon]
) -> None:
    daemon = new_daemon()
    daemon.start()
    chat = opens("-m", daemon.script(always("It is here.")), daemon=daemon)
    await chat.shows(READY, "s1 · build")
    await daemon.terminate()
    await chat.shows("the daemon is not running")
    chat.press("half a sen")
    daemon.start()
    await chat.until(lambda: "the daemon is not running" not in chat.text)
    chat.press("tence\r")
    await chat.shows("» half a sentence", "It is here.")


@pytest.mark.nightly
async def test_frontends_see_each_other_come_and_go(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    one = opens("-m", daemon.script(always("Read.")))
    await one.shows(READY)
    session = await newest(frontend)
    two = opens(session.session_id)
    await one.shows("also: tiller chat")
    await two.shows(READY, "also: tiller chat")
    two.press("\x04")
    assert await two.end() == 0
    await one.until(lambda: "also: tiller chat" not in one.text)


async def test_a_chat_that_was_left_is_not_named_to_the_next_one(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    await write_each(chat, "go")
    asks = Replay((await newest(frontend)).session_id, follower="another one")
    before = await frontend.must(asks)
    chat.press("\x04")
    assert await chat.end() == 0
    after = await frontend.must(asks)
    assert isinstance(before, ReplayResult)
    assert isinstance(after, ReplayResult)
    assert (before.followers, after.followers) == (("tiller chat",), ())


async def test_what_is_typed_while_the_chat_starts_is_sent_once_and_whole(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    """Even text typed before Python runs, when the terminal turns Enter into a newline."""
    model = daemon.script(always("Read."))
    chat = opens("-m", model)
    chat.press("first\rsec")
    await chat.read()  # the terminal's echo, or the first frame
    chat.press("ond\rthird")
    await chat.shows("» first", "second", "Read.")
    await chat.sees(f"{PROMPT}third")
    await chat.shows("■ completed")
    session = await newest(frontend)
    said = [
        item.text
        for item in (await frontend.snapshot(session.session_id)).items
        if isinstance(item, UserMessage)
    ]
    assert said == ["first", "second"]


async def test_a_text_pasted_like_typed_keys_is_one_message(
    opens: Opens, daemon: Daemon, frontend: Frontend, nursery: trio.Nursery
) -> None:
    """As from `tmux paste-buffer` without `-p`."""
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    lines = "".join(f"{number}: it is {'long ' * (number % 9)}\\\n" for number in range(LINES))
    nursery.start_soon(chat.paste_unmarked, f"{lines}\n\tthe last line\n")
    await chat.until(lambda: "■ completed" in chat.text)
    snapshot = await frontend.snapshot((await newest(frontend)).session_id)
    said = [item.text for item in snapshot.items if isinstance(item, UserMessage)]
    assert said == [f"{lines}\n\tthe last line"]


async def test_a_file_is_completed_and_its_name_is_sent(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    chat.press("what is in @gre")
    await chat.until(lambda: any(row.strip() == "greeting.txt" for row in chat.rows))
    chat.press("\t")
    await chat.until(lambda: "@greeting.txt" in chat.rows[chat.cursor[0]])
    chat.press("\r\r")
    await chat.shows("Read.", "completed")
    items = (await frontend.snapshot((await newest(frontend)).session_id)).items
    assert isinstance(items[0], UserMessage)
    assert items[0].text == "what is in @greeting.txt"
    assert [Path(file).name for file in items[0].files] == ["greeting.txt"]


async def test_the_picker_of_sessions_finds_by_what_was_said_renames_and_archives(
    opens: Opens, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    said = await frontend.session(workspace, always("The answer is a heliotrope."))
    await frontend.say(said, "which flower?")
    await frontend.turn_ended(said)
    failed = await frontend.session(workspace, ScriptStep(failures=(Failure("bad_request"),)))
    await frontend.say(failed, "fail")
    await frontend.turn_ended(failed)
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    chat.press("/sessions\r")
    await chat.shows("open a session")
    await chat.shows("failed · ")
    chat.press("heliotrope")
    await chat.until(lambda: any("▸" in row and "heliotrope" in row for row in chat.rows))
    chat.press("\x12")  # Ctrl-R
    await chat.shows("new title of")
    chat.press("The flower\r")
    await chat.until(lambda: any("The flower" in row and "ago" in row for row in chat.rows))
    assert (await frontend.snapshot(said)).title == "The flower"
    chat.press("heliotrope")
    await chat.until(
        lambda: any(
            "▸ The flower" in row and f"{workspace.name} · The answer is a heliotrope." in row
            for row in chat.rows
        )
    )
    chat.press("\x01")  # Ctrl-A
    await chat.shows("archived: The flower")
    await chat.until(lambda: not any("▸ The flower" in row for row in chat.rows))
    assert (await frontend.snapshot(said)).archived


async def test_a_session_is_forked_from_a_point_of_its_past(opens: Opens, daemon: Daemon) -> None:
    chat = opens("-m", daemon.script(always("Said.")))
    await chat.shows(READY)
    await write_each(chat, "the first thing", "the second thing")
    chat.press("/back\r")
    await chat.shows("go back to the point before", "▸ 2. the second thing")
    chat.press("\r")
    await chat.shows("before this turn")
    chat.press("fork\r")
    await chat.until(lambda: chat.text.count("tiller · ") == 2)
    await chat.until(lambda: READY in chat.rows[chat.cursor[0]])
    beginning = chat.text.rindex("tiller · ")
    assert "» the first thing" in chat.text[beginning:]
    assert "» the second thing" not in chat.text[beginning:]


async def test_a_turn_that_was_reverted_while_its_menu_was_open_is_refused(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    chat = opens("-m", daemon.script(always("Said.")))
    await chat.shows(READY)
    await write_each(chat, "the first thing", "the second thing")
    chat.press("/back\r")
    await chat.shows("go back to the point before", "▸ 2. the second thing")
    session_id = (await newest(frontend)).session_id
    last = (await frontend.snapshot(session_id)).marks[-1]
    await frontend.must(Revert(session_id, last.turn_id))
    await chat.shows("history was reverted")
    chat.press("\r")
    await chat.shows("before this turn")
    chat.press("\r")
    await chat.shows("The history of this session has no turn")


@pytest.mark.parametrize("agent", [pytest.param("build", marks=pytest.mark.nightly), "explore"])
async def test_shift_tab_switches_to_planning_and_back_also_when_pressed_often_at_once(
    opens: Opens, daemon: Daemon, agent: str
) -> None:
    chat = opens("-m", daemon.script(always("Fine.")), "--agent", agent)
    await chat.sees(READY, f"· {agent}")
    chat.press(SHIFT_TAB)
    await chat.sees("· plan")
    chat.press(SHIFT_TAB)
    await chat.sees(f"· {agent}")
    chat.press(SHIFT_TAB * 3)
    await chat.sees("· plan")


async def test_a_key_carries_out_the_plan_of_the_last_turn(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    chat = opens("-m", daemon.script(text("First a, then b."), always("Done.")))
    await chat.shows(READY)
    chat.press("\x1bg")
    await chat.sees("the last turn made no plan")
    chat.press(f"{SHIFT_TAB}plan it\r")
    await chat.shows("First a, then b.", "carry out the plan with Alt-G")
    chat.press("\x1bg")
    await chat.shows("» Carry out the plan.", "Done.", READY)
    session = await frontend.snapshot((await newest(frontend)).session_id)
    assert [mark.agent for mark in session.marks if not mark.step] == ["plan", "build"]
    assert "Alt-G" not in chat.rows[chat.cursor[0]]


async def test_escape_while_something_is_asked_takes_two_to_interrupt(
    opens: Opens, daemon: Daemon
) -> None:
    model = daemon.script(calls(bash("echo out > /var/tmp/never")), always("Well then."))
    chat = opens("-m", model, "--sandbox", "workspace_write", "--approve", "ask")
    await chat.shows(READY)
    chat.press("do it\r")
    await chat.shows(ANSWERABLE)
    chat.press("y")
    await chat.until(lambda: any(row.startswith("▸ y") for row in chat.rows))
    chat.press("\x1b")
    await chat.until(lambda: not any(row.startswith("▸ y") for row in chat.rows))
    chat.press("\x1b")
    await chat.shows("Esc again interrupts the turn")
    assert "■" not in chat.text
    chat.press("\x1b")
    await chat.shows("interrupted", READY)
