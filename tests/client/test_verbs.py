"""Every verb: what the daemon gets, what is printed, and that JSON is valid."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from support.each import each
from support.event_bodies import CONTEXT, Tiller, ended, started, text_item, tool_call
from support.fake_daemon import TURN, FakeDaemon, Refusal
from support.terminal import Terminal
from tiller_client.__main__ import main
from tiller_client.command_line.arguments import parse
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cells
from tiller_client.verbs.sessions import table_line
from tiller_protocol.catalog import ModelSummary, Price
from tiller_protocol.events import (
    QueueChanged,
    RequestOpened,
    SessionCreated,
    SessionTitled,
    StatusChanged,
    StepStarted,
    TurnStarted,
)
from tiller_protocol.items import QueuedInput, Request
from tiller_protocol.op import Op
from tiller_protocol.ops import (
    Answer,
    Compact,
    Interrupt,
    QueueEdit,
    Revert,
    SessionArchive,
    SessionDelete,
    SessionFork,
    Shutdown,
    TurnContinue,
    Unrevert,
    UserInput,
)
from tiller_protocol.places import DAEMON_OUTPUT_FILE, Places
from tiller_protocol.settings import Settings, TurnOverrides
from tiller_protocol.snapshot import SessionSummary

SESSION = "01K0AAAAAAAAAAAAAAAAAASES1"
OTHER = "01K0BBBBBBBBBBBBBBBBBBSES2"
REQUEST = Request("01K0REQ00000000000000000R1", "approval", "bash: ls", subjects=("ls",))


@pytest.fixture
def daemon(places: Places) -> Any:
    """A daemon with two sessions; one has history, a request and queued input."""
    with FakeDaemon(places.runtime) as fake:
        bodies = [
            SessionCreated("/work/shop", Settings()),
            SessionTitled("Repair the shop"),
            started(),
            *text_item("i1", "I look."),
            *tool_call("i2", "edit", "a.py", diff="@@ -1 +1 @@\n-a\n+b\n"),
            RequestOpened(REQUEST),
            QueueChanged((QueuedInput("q1", "and then", "queue"),)),
        ]
        fake.add(SESSION, bodies)
        fake.add(OTHER, [SessionCreated("/work/other", Settings()), started(), ended("x")])
        fake.add(OTHER, [StatusChanged("idle")])
        yield fake


def only(daemon: FakeDaemon, kind: type[Op]) -> Any:
    (found,) = [op for op in daemon.seen.values() if isinstance(op, kind)]
    return found


JSON_VERBS = [
    ("exec", "--session", OTHER, "x"),
    ("resume", OTHER),
    ("attach", "--until-idle", OTHER),
    ("log", SESSION),
    ("new",),
    ("ls",),
    ("search", "--all", "Repair", "the", "shop"),
    ("show", SESSION),
    ("archive", SESSION),
    ("rm", "--yes", OTHER),
    ("fork", SESSION),
    ("set", SESSION, "variant", "high"),
    ("send", SESSION, "text"),
    ("steer", SESSION, "text"),
    ("interrupt", SESSION),
    ("queue", SESSION),
    ("requests",),
    ("answer", REQUEST.id, "once"),
    ("rules",),
    ("rules", "revoke", "c0ffee"),
    ("compact", SESSION),
    ("revert", SESSION, "last"),
    ("unrevert", SESSION),
    ("diff", SESSION),
    ("shell", SESSION, "ls"),
    ("models",),
    ("agents",),
    ("tools",),
    ("commands",),
    ("config", "path"),
    ("config", "show"),
    ("trust",),
    ("untrust",),
    ("doctor",),
    ("sandbox",),
    ("daemon", "status"),
    ("daemon", "start"),
    ("daemon", "logs"),
    ("daemon", "stop"),
    ("schema",),
]


@pytest.mark.parametrize("verb", JSON_VERBS, ids=" ".join)
def test_json_of_every_verb_is_one_object_a_line(
    daemon: FakeDaemon, places: Places, tiller: Tiller, verb: tuple[str, ...]
) -> None:
    places.state.mkdir()
    (places.state / DAEMON_OUTPUT_FILE).write_text("ready\n")
    daemon.play = lambda fake, session_id: fake.add(session_id, [started(), ended("done")])
    _, out, err = tiller(*verb, "--json")
    for line in out.splitlines():
        assert isinstance(json.loads(line), dict)
    assert out or verb[0] in ("agents", "tools", "commands")
    assert "bug" not in err


@pytest.mark.parametrize(
    ("command_line", "op"),
    [
        (("archive", SESSION), SessionArchive(SESSION)),
        (("archive", "--undo", SESSION), SessionArchive(SESSION, archived=False)),
        (("rm", "--yes", SESSION), SessionDelete(SESSION)),
        (("fork", "--at", "3", SESSION), SessionFork(SESSION, 3)),
        (("send", SESSION, "hi"), UserInput(SESSION, "hi")),
        (("send", "--queue", SESSION, "hi"), UserInput(SESSION, "hi", delivery="queue")),
        (
            ("steer", "--turn", "t1", SESSION, "hi"),
            UserInput(SESSION, "hi", delivery="steer", expected_turn_id="t1"),
        ),
        (("send", "--no-reply", SESSION, "hi"), UserInput(SESSION, "hi", no_reply=True)),
        (("interrupt", SESSION), Interrupt(SESSION)),
        (("interrupt", "--turn", "t1", SESSION), Interrupt(SESSION, "t1")),
        (("queue", SESSION, "--remove", "q1"), QueueEdit(SESSION, "q1", "remove")),
        (("queue", SESSION, "--promote", "q1"), QueueEdit(SESSION, "q1", "promote")),
        (("queue", SESSION, "--edit", "q1", "new"), QueueEdit(SESSION, "q1", "edit", "new")),
        (("queue", SESSION, "--move", "q1", "2"), QueueEdit(SESSION, "q1", "move", position=2)),
        (("resume", OTHER), TurnContinue(OTHER)),
        (
            ("resume", "-m", "play/a", "--agent", "plan", "--approve", "never", OTHER),
            TurnContinue(OTHER, TurnOverrides(agent="plan", model="play/a", approve="never")),
        ),
        (("answer", REQUEST.id, "once"), Answer(REQUEST.id, "once")),
        (("answer", "00r1", "reject", "no"), Answer(REQUEST.id, "reject", "no")),
        (("answer", "00r1", "answer", "two words"), Answer(REQUEST.id, "answer", "two words")),
        (("compact", SESSION), Compact(SESSION)),
        (("revert", "--step", "2", SESSION, TURN[-4:]), Revert(SESSION, TURN, 2)),
        (("unrevert", SESSION), Unrevert(SESSION)),
        (("daemon", "stop"), Shutdown("now")),
        (("daemon", "stop", "--drain"), Shutdown("drain")),
    ],
)
def test_a_verb_submits_its_op(
    daemon: FakeDaemon, tiller: Tiller, command_line: tuple[str, ...], op: Op
) -> None:
    daemon.play = lambda fake, session_id: fake.add(session_id, [started(), ended("done")])
    tiller(*command_line)
    assert only(daemon, type(op)) == op


def test_what_waits_says_how_to_go_on(daemon: FakeDaemon, tiller: Tiller) -> None:
    waiting = (QueuedInput("q1", "one", "queue"), QueuedInput("q2", "two", "queue"))
    daemon.add(OTHER, [QueueChanged(waiting, waits=True)])
    status, out, err = tiller("queue", OTHER)
    assert (status, out) == (0, "q1  one\nq2  two\n")
    hint = f"2 inputs wait; continue with: tiller resume {OTHER}"
    assert hint in err
    assert hint in tiller("show", OTHER)[1]
    steering = QueuedInput("q2", "stop", "steer")
    daemon.add(SESSION, [QueueChanged((QueuedInput("q1", "and then", "queue"), steering))])
    _, out, err = tiller("queue", SESSION)
    assert out == "q1  and then\nq2  stop (for the next step)\n"
    assert "go on with" not in err, "its turn takes the input"


def test_an_op_that_the_daemon_can_not_do_is_a_sentence_and_1(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    daemon.refusals[Compact] = Refusal("unavailable", "Not now.")
    status, out, err = tiller("compact", SESSION)
    assert (status, out, err) == (1, "", "tiller: Not now.\n")


def test_steering_without_a_turn_says_how_to_begin_one(daemon: FakeDaemon, tiller: Tiller) -> None:
    daemon.refusals[UserInput] = Refusal("no_active_turn", "Your input is in `data`.")
    status, out, err = tiller("steer", SESSION, "hm")
    assert (status, out) == (1, "")
    assert "start one with: tiller send" in err


@pytest.mark.parametrize("reference", [SESSION, SESSION.lower(), "SES1", "ses1", "01K0A", "aaaas"])
def test_a_session_is_named_by_its_id_or_a_piece_of_it(
    daemon: FakeDaemon, tiller: Tiller, reference: str
) -> None:
    assert daemon
    status, out, _ = tiller("show", reference)
    assert (status, out.splitlines()[0]) == (0, "Repair the shop")


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("SES", "too short"),
        ("01K0", "matches 2 sessions"),
        ("ZZZZ", "no session has an id that begins or ends"),
    ],
)
def test_a_piece_that_names_no_session_or_several_is_misuse(
    daemon: FakeDaemon, tiller: Tiller, reference: str, complaint: str
) -> None:
    assert daemon
    status, _, err = tiller("show", reference)
    assert status == 2
    assert complaint in err


def test_a_session_with_a_slip_in_its_id_is_offered_and_not_taken(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    assert daemon
    status, out, err = tiller("show", SESSION[-8:].replace("SES", "SAS"))
    assert (status, out) == (2, "")
    assert f"did you mean {SESSION[-8:]}? see: tiller ls --all" in err
    assert "did you mean" not in tiller("show", "ZZZZ")[2]


def test_ls_is_a_table_and_says_what_it_leaves_out(daemon: FakeDaemon, tiller: Tiller) -> None:
    assert daemon
    _, out, _ = tiller("ls")
    assert [line.split()[0] for line in out.splitlines()] == [OTHER[-8:], SESSION[-8:]]
    assert "waiting" in out
    assert "Repair the shop" in out
    assert "tiller ls --all" in tiller("ls", "-n", "1")[1]


@each("width", [40, 80, 100, 200])
def test_ls_tells_cost_context_branch_and_fork_within_its_width(width: int) -> None:
    session = SessionSummary(
        SESSION,
        "/home/somebody/projects/a-long-name/of-a-directory",
        0.0,
        0.0,
        9,
        title="Repair the shop and everything that is beside it",
        cost=0.25,
        parent_id=OTHER,
        parent_turns=3,
        context_tokens=123,
        context_window=1000,
        branch="fix/login\x1b[2J",
    )
    line = table_line(session, 60.0, Theme(), width)
    assert cells(line) <= max(width, 67)
    assert "\x1b" not in line
    if width == 80:
        assert "Repair the shop" in line
        assert "$0.25 · 12 %" in line
    if width == 200:
        fork = f"fork of {OTHER[-8:]} at turn 3"
        assert line.endswith(f"  $0.25 · 12 % · fix/login␛[2J · {fork}")


@given(
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.text(st.characters(codec="utf-8"), max_size=60),
    st.integers(80, 200),
)
def test_columns_of_ls_are_where_they_are_however_wide_the_characters(
    workspace: str, title: str, width: int
) -> None:
    def line(workspace: str, title: str) -> str:
        session = SessionSummary(SESSION, workspace, 0.0, 0.0, 1, title=title)
        return table_line(session, 60.0, Theme(), width)

    assert cells(line(workspace, title)) <= width
    begin = cells(line("/w", "Title").partition("Title")[0])
    assert cells(line("/" + workspace.replace("Title", ""), "Title").partition("Title")[0]) == begin


def test_ls_as_json_has_the_figures_as_they_are(daemon: FakeDaemon, tiller: Tiller) -> None:
    daemon.add(OTHER, [started(), replace(ended("x"), branch="main")])
    first = json.loads(tiller("ls", "--json")[1].splitlines()[0])
    assert (first["branch"], first["context_window"]) == ("main", 1000)
    assert "main" in tiller("ls")[1].splitlines()[0]


def test_ls_tells_how_the_last_turn_ended_and_chooses_by_it(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    for outcome in ("failed", "interrupted", "limit_reached", "completed"):
        session_id = f"01K0{outcome:C<22.22}".upper().replace("_", "C")
        daemon.add(session_id, [started(), StepStarted(1), ended(outcome=outcome)])
    states = [line.split()[3] for line in tiller("ls")[1].splitlines()]
    assert sorted(states) == ["failed", "idle", "idle", "interrupted", "limit", "waiting"]
    one, other = tiller("ls", "--failed", "--waiting", "--json")[1].splitlines()
    assert {json.loads(one)["status"], json.loads(other)["status"]} == {"idle", "waiting"}
    assert "FAILED" in tiller("ls", "--failed", "-n", "1", "--json")[1]
    assert tiller("ls", "--working", "--failed", "-C", "/")[1] == (
        "no session is working or failed\n"
    )


def test_requests_shows_what_to_answer(daemon: FakeDaemon, tiller: Tiller) -> None:
    assert daemon
    _, out, _ = tiller("requests")
    assert re.search(rf"{REQUEST.id}  \d+ d  session {SESSION[-8:]} “", out)
    assert "bash: ls" in out
    assert tiller("requests", OTHER)[1] == "there are no open requests\n"
    assert "to answer" not in out
    terminal = Terminal("requests")
    terminal.wait_for("to answer: tiller answer ID y, a, h, n")
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        ("once", "allowed once"),
        ("always", "allowed for the rest of the session"),
        ("reject", "rejected"),
        ("y", "allowed once"),
        ("n", "rejected"),
    ],
)
def test_an_answer_says_what_it_was_given_to_and_in_which_session(
    daemon: FakeDaemon, tiller: Tiller, decision: str, said: str
) -> None:
    assert daemon
    status, out, _ = tiller("answer", "00r1", decision)
    assert (status, out.partition(" “")[0]) == (0, f"{said}: bash: ls (session {SESSION[-8:]}")
    assert " in /" in out
    unknown = "01K0REQ00000000000000000R9"
    assert tiller("answer", unknown, decision)[1] == f"{said}: {unknown}\n"


def test_a_session_that_asks_only_one_thing_stands_for_its_request(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    status, _, err = tiller("answer", OTHER[-8:], "y")
    assert (status, "asks nothing now" in err) == (2, True)
    assert tiller("answer", SESSION[-8:], "y")[0] == 0
    assert only(daemon, Answer) == Answer(REQUEST.id, "once")


def test_log_begins_after_what_is_known_and_refuses_what_is_not_there_yet(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    assert daemon
    _, out, _ = tiller("log", "--json", "--after", "3", OTHER)
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [4]
    status, _, err = tiller("log", "--after", "9", OTHER)
    assert status == 2
    assert "beyond the last event" in err


def test_the_last_items_are_shown_to_people_and_the_last_events_to_programs(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    """However many events one item has: here are more than are looked at first."""
    daemon.add(OTHER, [started(), *text_item("i1", "one"), *text_item("i2", *["two "] * 300)])
    daemon.add(OTHER, [*text_item("i3", "three"), ended("three"), StatusChanged("idle")])
    head = len(daemon.sessions[OTHER])
    for verb in (("log",), ("attach", "--until-idle")):
        _, out, _ = tiller(*verb, "--tail", "2", OTHER)
        assert out.startswith("two two ")
        assert out.splitlines()[1] == "three"
        assert tiller(*verb, "--tail", "9999", OTHER)[1] == tiller(*verb, OTHER)[1]
        _, out, _ = tiller(*verb, "--json", "--tail", "3", OTHER)
        seqs = [json.loads(line)["seq"] for line in out.splitlines()]
        assert seqs == [head - 2, head - 1, head]
    _, out, _ = tiller("show", "--tail", "1", OTHER)
    assert "earlier items" in out
    assert "two" not in out
    shown = json.loads(tiller("show", "--json", "--tail", "2", OTHER)[1])
    assert [item["id"] for item in shown["snapshot"]["items"]] == ["i2", "i3"]
    assert tiller("log", "--tail", "2", "--after", "3", OTHER)[0] == 2
    assert tiller("log", "--tail", "0", OTHER)[0] == 2


def test_attach_until_idle_shows_a_running_turn_to_its_end(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    def play(fake: FakeDaemon, session_id: str) -> None:
        fake.add(session_id, [started(), *text_item("i9", "on it"), ended("on it")])
        fake.add(session_id, [StatusChanged("idle")])

    daemon.play = play
    tiller("send", OTHER, "go on")
    status, out, _ = tiller("attach", "--until-idle", "--after", "4", OTHER)
    assert status == 0
    assert out.splitlines()[1:2] == ["on it"]


def test_models_say_what_is_known_of_them_and_why_one_can_not_be_used(
    places: Places, tiller: Tiller
) -> None:
    with FakeDaemon(places.runtime) as fake:
        fake.models = (
            ModelSummary(
                "local/qwen",
                "openai_chat",
                default=True,
                context_window=32_768,
                price=Price(0.3, 1.2, cached_input=0.03),
                variants=("low", "high"),
            ),
            ModelSummary("gone/m", "openai_chat", problem="nobody\nlistens"),
            *(ModelSummary(f"local/m{n}", "openai_chat", listed=True) for n in range(2)),
            *(ModelSummary(f"many/m{n}", "openai_chat", listed=True) for n in range(99)),
        )
        _, out, _ = tiller("models")
        _, everything, _ = tiller("models", "--all")
        _, as_json, _ = tiller("models", "--json")
    assert out.splitlines() == [
        "local/qwen openai_chat · default · 32.8k tokens · $0.30 (cached $0.03) in, $1.20 out · "
        "variants lo…",
        "gone/m openai_chat",
        "    nobody listens",
        "local/m0 openai_chat",
        "local/m1 openai_chat",
        "many/… 99 more: tiller models --all",
    ]
    assert len(everything.splitlines()) == 3 + 2 + 99
    assert len(as_json.splitlines()) == 2 + 2 + 99


def test_status_of_no_daemon_says_so_and_is_1(tiller: Tiller) -> None:
    status, out, _ = tiller("daemon", "status")
    assert status == 1
    assert "tiller daemon start" in out
    assert json.loads(tiller("daemon", "status", "--json")[1])["type"] == "not_running"


def test_status_says_where_to_connect_also_without_a_daemon(places: Places, tiller: Tiller) -> None:
    wanted = {
        "ops_socket": str(places.runtime / "ops.sock"),
        "events_socket": str(places.runtime / "events.sock"),
        "token_file": str(places.runtime / "token"),
    }
    without = json.loads(tiller("daemon", "status", "--json")[1])
    with FakeDaemon(places.runtime):
        running = json.loads(tiller("daemon", "status", "--json")[1])
        assert all(Path(path).exists() for path in wanted.values())
    assert (without["type"], running["type"]) == ("not_running", "daemon_status")
    for said in (without, running):
        assert wanted.items() <= said.items()


def test_stopping_no_daemon_is_no_failure(tiller: Tiller) -> None:
    assert tiller("daemon", "stop")[:2] == (0, "no daemon is running\n")


def test_logs_shows_the_end_of_what_the_daemon_printed(places: Places, tiller: Tiller) -> None:
    places.state.mkdir(parents=True)
    lines = "".join(f"line {number}\n" for number in range(100))
    (places.state / DAEMON_OUTPUT_FILE).write_text(lines + "\x1b[31mred\n")
    status, out, _ = tiller("daemon", "logs", "-n", "2")
    assert (status, out) == (0, "line 99\n␛[31mred\n")


def test_config_path_needs_no_daemon(places: Places, tiller: Tiller) -> None:
    assert tiller("config", "path")[:2] == (0, f"{places.config / 'config.toml'}\n")


def test_config_show_is_the_file_under_its_name(places: Places, tiller: Tiller) -> None:
    path = places.config / "config.toml"
    assert "does not exist" in tiller("config", "show")[1]
    path.parent.mkdir(parents=True)
    path.write_text('model = "p/m"\n')
    assert tiller("config")[1] == f'# {path}\nmodel = "p/m"\n'
    path.unlink()
    path.symlink_to(path)
    status, _, err = tiller("config", "show")
    assert status == 1
    assert f"{path} can't be read: " in err


@pytest.mark.nightly
def test_doctor_says_whether_the_search_tools_work(
    tiller: Tiller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert re.search(r"ok    rg +ripgrep \d+", tiller("doctor")[1])
    broken = tmp_path / "bin" / "rg"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent))
    # The one beside Python is taken instead, as the daemon takes it.
    assert re.search(r"ok    rg +ripgrep \d+", tiller("doctor")[1])
    monkeypatch.setattr(sys, "executable", str(broken.parent / "python"))
    status, out, _ = tiller("doctor")
    assert status == 1
    assert re.search(rf"fail  rg +{broken} does not run: .*; glob and grep need it: pip", out)


def test_doctor_names_what_is_wrong_and_ends_with_1(places: Places, tiller: Tiller) -> None:
    with FakeDaemon(places.runtime):
        places.runtime.chmod(0o755)
        status, out, _ = tiller("doctor")
        places.runtime.chmod(0o700)
    assert status == 1
    assert "chmod 700" in out


def test_schema_is_a_json_schema(tiller: Tiller) -> None:
    schema = json.loads(tiller("schema")[1])
    assert "Submission" in schema["$defs"]


def test_a_bug_is_a_short_line_and_the_whole_on_demand(
    tiller: Tiller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiller_client.verbs.machine.config.my_places", lambda: 1 / 0)
    status, _, err = tiller("config", "path")
    assert status == 1
    assert err.startswith("tiller: this is a bug: ZeroDivisionError")
    assert len(err.splitlines()) == 1
    monkeypatch.setenv("TILLER_DEBUG", "1")
    assert "Traceback" in tiller("config", "path")[2]


def test_help_names_every_verb_and_needs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended_by:
        main(["--help"])
    assert ended_by.value.code == 0
    out = capsys.readouterr().out
    for verb in {verb[0] for verb in JSON_VERBS}:
        assert f"    {verb} " in out, out


@pytest.mark.parametrize("verb", JSON_VERBS, ids=" ".join)
def test_every_verb_has_help_and_takes_json(
    capsys: pytest.CaptureFixture[str], verb: tuple[str, ...]
) -> None:
    assert parse(verb).json is False
    with pytest.raises(SystemExit):
        parse([*verb, "--help"])
    assert "--json" in capsys.readouterr().out


def test_show_prompt_shows_what_the_model_was_told_in_one_turn(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    told = replace(CONTEXT, system_prompt="Be brief.\n\x1b[31m", tools=("read", "ls"))
    daemon.add(OTHER, [TurnStarted(told), ended("y")])
    status, out, _ = tiller("show", "--prompt", "last", OTHER)
    assert (status, out) == (0, "Be brief.\n␛[31m\n\ntools: read, ls\n")
    _, out, _ = tiller("show", "--prompt", "last", OTHER, "--json")
    assert json.loads(out)["context"]["system_prompt"] == "Be brief.\n\x1b[31m"
    status, _, err = tiller("show", "--prompt", "NOSUCHTURN", OTHER)
    assert status == 2
    assert "no turn of this session" in err
