"""What a person does in a day, with `tiller` as a process and the real daemon."""

import json
import subprocess
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import pytest
import trio

from e2e.conftest import GIT
from e2e.gates import Gate
from e2e.words import always, bash, calls, hang, text, write
from support.chat import ChatTerminal
from support.command_line import CommandLine
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart, Failure, ScriptedUsage, ScriptStep, TextPart
from tiller_protocol import VERSION

OUTSIDE = "echo out > /var/tmp/never && false"
INTERRUPT_FIRST = "A turn is running. Interrupt it first, or wait until it ends."


@pytest.fixture
def tiller(daemon: Daemon, workspace: Path) -> CommandLine:
    return CommandLine(daemon, workspace)


@pytest.fixture
def opens(tiller: CommandLine) -> Generator[Callable[..., ChatTerminal]]:
    """Return a function that opens a terminal, which is closed after the test."""
    opened: list[ChatTerminal] = []

    def start(*arguments: str, **more: str) -> ChatTerminal:
        opened.append(tiller.on_terminal(*arguments, **more))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def test_last_is_the_most_recently_active_session_here_and_elsewhere_nothing_is_changed_by_it(
    daemon: Daemon, tiller: CommandLine, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    elsewhere = CommandLine(daemon, other)
    assert tiller("exec", "-m", daemon.script(always("Here.")), "x").status == 0
    refused = elsewhere("send", "last", "x")
    assert refused.status == 2
    assert "this directory has no session; the most recently active of all is" in refused.err
    assert elsewhere("exec", "-m", daemon.script(always("There.")), "y").status == 0
    assert "Here." in tiller("show").out
    assert "There." in elsewhere("show").out
    assert tiller("exec", "--session", "last", "again").out == "Here.\n"


def test_last_is_the_session_that_was_active_last_and_not_the_newest(tiller: CommandLine) -> None:
    older, newer = (tiller("new").out.strip() for _ in range(2))
    assert newer in tiller("log", "--json").out
    assert tiller("set", older, "title", "Repairs").status == 0
    assert newer in tiller("log", "--json").out
    assert tiller("set", older, "approve", "never").status == 0
    assert "Repairs" in tiller("show").out
    assert "Repairs" in tiller("ls", "-n", "1").out
    assert "only the 1 most recently active are listed" in tiller("ls", "-n", "1").out


def test_the_options_of_a_turn_reach_the_model_from_new_exec_and_send(
    daemon: Daemon, tiller: CommandLine
) -> None:
    model, other = daemon.script(always("One.")), daemon.script(always("Other."))
    made = tiller("new", "-m", model, "--tools", "read,ls", "--max-steps", "7")
    session_id = made.out.strip()
    assert tiller("send", "--wait", session_id, "x").out == "One.\n"
    assert tiller("send", "--wait", "-m", other, session_id, "x").out == "Other.\n"
    assert tiller("exec", "--session", session_id, "--tools", "read", "x").out == "One.\n"
    requests = [one for one in daemon.asked(session_id) if one.purpose == "turn"]
    asked = [[tool.name for tool in request.tools] for request in requests]
    assert asked == [["read", "ls"], ["read", "ls"], ["read"]]
    stepping = daemon.script(calls(bash("ls")), always("Here is what is left."))
    limited = tiller("exec", "-m", stepping, "--approve", "always", "--max-steps", "2", "x")
    assert (limited.status, limited.out) == (4, "Here is what is left.\n")
    assert tiller("exec", "-m", model, "--budget", "steps=0", "x").status == 2
    refused = tiller("exec", "-m", "scripted/nosuch/x", "--variant", "deep", "x")
    assert refused.status == 1, "nothing is guessed"
    refused = tiller("exec", "-m", model, "--variant", "nosuch", "x")
    assert (refused.status, refused.out) == (1, "")
    assert f"{model} has no variants, so it does not have 'nosuch'." in refused.err


def test_what_is_set_counts_from_the_next_turn_on(daemon: Daemon, tiller: CommandLine) -> None:
    model, other = daemon.script(always("One.")), daemon.script(always("Other."))
    assert tiller("exec", "-m", model, "x").out == "One.\n"
    done = tiller("set", "last", "model", other).out
    assert done.startswith("model of session ")
    assert done.endswith(f" is now {other}\n")
    assert tiller("exec", "--session", "last", "x").out == "Other.\n"
    assert tiller("set", "last", "nosuch", "x").status == 2


def test_an_answer_with_a_reason_is_given_on_the_terminal_and_the_turn_goes_on(
    daemon: Daemon, opens: Callable[..., ChatTerminal]
) -> None:
    async def play() -> None:
        model = daemon.script(calls(bash(OUTSIDE)), text("I use another way."))
        terminal = opens("exec", "-m", model, "x")
        await terminal.shows("n reject")
        terminal.press("n\n")
        await terminal.shows("why not? (a reason lets the model continue")
        terminal.press("use the workspace\n")
        await terminal.shows("rejected by tiller exec: use the workspace", "I use another way.")
        assert await terminal.end() == 0

    trio.run(play)


async def test_the_number_of_a_choice_is_an_answer_also_from_elsewhere(
    daemon: Daemon, tiller: CommandLine, opens: Callable[..., ChatTerminal]
) -> None:
    asked = CallPart("question", arguments={"text": "Which?", "choices": ["red", "green"]})
    terminal = opens("exec", "-m", daemon.script(calls(asked), text("Good.")), "x")
    await terminal.shows("number or text »")
    terminal.press("3\n")
    await terminal.shows("type a number from 1 to 2, or text")
    (listed,) = tiller("requests", "--json").out.splitlines()
    request_id = json.loads(listed)["request"]["id"]
    refused = tiller("answer", request_id, "answer", "3")
    assert refused.err == "tiller: '3' was not sent: type a number from 1 to 2, or text\n"
    assert refused.status == 2
    assert tiller("answer", request_id, "answer", "2").out.startswith("answered: Which? “green” (")
    await terminal.shows("answered by tiller answer: green", "Good.")
    assert await terminal.end() == 0


def test_long_output_is_cut_unless_all_of_it_is_asked_for(
    daemon: Daemon, tiller: CommandLine
) -> None:
    model = daemon.script(calls(bash("seq 1 200")), text("Counted."))
    cut = tiller("exec", "-m", model, "x")
    assert "    200" in cut.err
    assert "    17\n" not in cut.err
    assert "more lines: tiller show --full" in tiller("show").out
    assert "    17\n" in tiller("show", "--full").out
    assert "turn 1 · 20" in tiller("show").out, "when it began"
    last = tiller("show", "--tail", "1").out
    assert "Counted." in last
    assert "seq 1 200" not in last
    whole = daemon.script(calls(bash("seq 1 200")), text("Counted."))
    assert "    17\n" in tiller("exec", "-v", "-m", whole, "x").err
    quiet = daemon.script(calls(bash("seq 1 200")), text("Counted."))
    assert tiller("exec", "--quiet", "-m", quiet, "x") == (0, "Counted.\n", "")


def test_cost_context_and_branch_are_in_the_last_line_and_in_the_list(
    new_daemon: Callable[..., Daemon], workspace: Path
) -> None:
    daemon = new_daemon()
    model = daemon.script(calls(bash("ls")), text("Done."), title=text("Look around"))
    priced = f'[models."{model}"]\ncontext_window = 1000\nprice = {{ input = 3, output = 15 }}\n'
    daemon.configure((daemon.places.config / "config.toml").read_text() + priced)
    daemon.start()
    tiller = CommandLine(daemon, workspace)
    subprocess.run([*GIT, "checkout", "-qb", "topic"], cwd=workspace, check=True)
    assert "· topic ·" in tiller("exec", "-m", model, "x").err
    (listed,) = tiller("ls").out.splitlines()
    assert "topic" in listed
    (figures,) = map(json.loads, tiller("ls", "--json").out.splitlines())
    assert (figures["branch"], figures["context_window"]) == ("topic", 1000)


def test_a_patch_goes_from_one_checkout_to_another(
    daemon: Daemon, tiller: CommandLine, workspace: Path, tmp_path: Path
) -> None:
    fresh, binary = tmp_path / "fresh", bash("printf 'a\\0\\377' > new.bin")
    model = daemon.script(calls(write("new.txt", "hello, world\n")), calls(binary), text("Done."))
    assert tiller("exec", "-m", model, "--approve", "always", "x").status == 0
    patch = tiller("diff").out
    subprocess.run([*GIT, "clone", "-q", str(workspace), str(fresh)], check=True)
    subprocess.run([*GIT, "apply"], cwd=fresh, input=patch, text=True, check=True)
    assert (fresh / "new.txt").read_text() == "hello, world\n"
    assert (fresh / "new.bin").read_bytes() == b"a\0\xff"
    subprocess.run([*GIT, "apply", "-R"], cwd=fresh, input=patch, text=True, check=True)
    assert not (fresh / "new.bin").exists()


def test_what_does_not_fit_on_the_terminal_is_read_in_the_pager(
    daemon: Daemon, tiller: CommandLine, opens: Callable[..., ChatTerminal], tmp_path: Path
) -> None:
    model = daemon.script(text("\n".join(f"line {number}" for number in range(99))))
    assert tiller("exec", "-m", model, "x").status == 0
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/read\necho paged\n")
    pager.chmod(0o755)

    async def play() -> None:
        paged = opens("show", pager=str(pager))
        assert await paged.end() == 0
        assert "paged" in paged.text
        assert "line 50" not in paged.text
        plain = opens("show", pager="cat")
        assert await plain.end() == 0
        assert "line 50" in plain.text

    trio.run(play)
    assert "line 50" in (tmp_path / "read").read_text()


@pytest.mark.nightly
async def test_a_busy_session_says_what_to_do_first_and_the_last_archived_one_comes_back(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    tiller = CommandLine(daemon, workspace)
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), text("Done."))
    await frontend.say(session_id, "x")
    await gate.reached()
    refused = await trio.to_thread.run_sync(tiller, "archive", session_id)
    assert (refused.status, refused.err) == (1, f"tiller: {INTERRUPT_FIRST}\n")
    for words in ("revert last", "unrevert last", "compact last", "resume last", "shell last ls"):
        refused = await trio.to_thread.run_sync(tiller, *words.split())
        assert (refused.status, refused.err) == (1, f"tiller: {INTERRUPT_FIRST}\n")
    refused = await trio.to_thread.run_sync(tiller, "exec", "--session", "last", "more")
    assert refused.status == 1
    assert (
        "queue your input, or wait until it ends. Add your prompt to it with --queue" in refused.err
    )
    gate.open()
    await frontend.turn_ended(session_id)
    done = await trio.to_thread.run_sync(tiller, "archive", session_id)
    assert done.out.startswith("archived session")
    assert session_id[-8:] not in (await trio.to_thread.run_sync(tiller, "ls")).out
    back = await trio.to_thread.run_sync(tiller, "archive", "--undo", "last")
    assert "out of the archive" in back.out
    assert session_id[-8:] in (await trio.to_thread.run_sync(tiller, "ls")).out


@pytest.mark.nightly
async def test_a_restart_that_waits_for_a_turn_says_so(
    new_daemon: Callable[..., Daemon], workspace: Path
) -> None:
    daemon = new_daemon()
    daemon.start()
    tiller, gate = CommandLine(daemon, workspace), Gate(workspace)
    model = daemon.script(calls(bash(gate.command)), text("Done."))
    with closing(tiller.on_terminal("exec", "-m", model, "x")) as turn:
        await gate.reached()
        with closing(tiller.on_terminal("daemon", "restart", "--drain")) as restart:
            await restart.shows("waiting for the running turns to end; Ctrl-C stops only")
            gate.open()
            assert await turn.end() == 0
            await restart.shows("turns running 0")
            assert await restart.end() == 0
    stopped = await trio.to_thread.run_sync(tiller, "daemon", "stop")
    assert stopped.out == "stopped\n"


def test_a_script_gets_a_status_for_each_way_to_end(daemon: Daemon, tiller: CommandLine) -> None:
    asking = daemon.script(calls(bash(OUTSIDE)), text("Done."))
    assert tiller("exec", "--no-wait", "-m", asking, "x").status == 3
    silent = daemon.script(hang("So far."))
    assert tiller("exec", "--timeout", "1s", "-m", silent, "x").status == 124
    piped = daemon.script(text("I see."))
    said = tiller("exec", "-m", piped, "why?", stdin="make: *** no rule\n")
    assert said[:2] == (0, "I see.\n")
    assert "<context>" not in tiller("ls").out, "a title is what a person wrote"


def test_help_of_a_verb_the_version_and_a_slip_need_no_daemon(
    new_daemon: Callable[..., Daemon], workspace: Path
) -> None:
    tiller = CommandLine(new_daemon(), workspace)
    assert tiller("help", "exec") == tiller("exec", "--help")
    assert "usage: tiller exec" in tiller("help", "exec").out
    assert VERSION in tiller("--version").out
    slip = tiller("exce", "x")
    assert (slip.status, slip.out) == (2, "")
    assert "did you mean: tiller exec?" in slip.err
    assert tiller("daemon", "status").status == 1, "none was started"


def test_a_fork_says_of_what_it_is_one(daemon: Daemon, tiller: CommandLine) -> None:
    assert tiller("exec", "-m", daemon.script(always("One.")), "x").status == 0
    session = tiller("ls").out.split()[0]
    assert tiller("fork", "last").status == 0
    assert f"fork of {session} at turn 1" in tiller("ls").out.splitlines()[0]
    assert f"fork of {session} at turn 1" in tiller("show").out


def test_why_a_turn_failed_is_shown_later_as_well(daemon: Daemon, tiller: CommandLine) -> None:
    broke = ScriptStep(failures=(Failure("quota", "No money is left."),))
    assert tiller("exec", "-m", daemon.script(broke, always("Paid.")), "x").status == 1
    assert tiller("exec", "--session", "last", "again").status == 0
    shown = tiller("show").out
    failed, paid = shown.index("No money is left."), shown.index("Paid.")
    assert shown.index("■ failed") in range(failed, paid)


def test_why_a_compaction_failed_is_said_once(daemon: Daemon, tiller: CommandLine) -> None:
    """This holds for a turn that can't continue, and for a turn that is only a compaction."""
    why = "the summariser is on strike"
    full = ScriptStep(parts=(TextPart("Read."),), usage=ScriptedUsage(input_tokens=95_000_000))
    refusal = ScriptStep(failures=(Failure("authentication", why),))
    daemon.play("roomy", full, always("never"), compaction=refusal)
    assert tiller("exec", "-m", "scripted/roomy", "read").status == 0
    for words in (("exec", "--session", "last", "more"), ("compact", "last")):
        status, out, err = tiller(*words)
        assert (status, out) == (1, "")
        assert err.count(why) == 1, err
    assert f"smaller. {why}. Start" in tiller("log").out
