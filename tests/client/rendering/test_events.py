"""Events are rendered as readable text, in any width, with or without colours."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from support.each import each
from support.event_bodies import CONTEXT, ended, started, text_item, tool_call
from tiller_client.rendering.events import Renderer
from tiller_client.rendering.facts import Facts
from tiller_client.rendering.items import verb_lines
from tiller_client.rendering.labels import call_title
from tiller_client.rendering.lines import turn_end_line
from tiller_client.rendering.requests import request_block
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cells, local_time
from tiller_client.rendering.transcript import transcript
from tiller_daemon.session.context.mode_reminder import MAY_WRITE, ONLY_READS
from tiller_daemon.session.turns.starting import CONTINUED_NOTICE
from tiller_daemon.turn.closing import INTERRUPTED_NOTICE, RESUMED_NOTICE
from tiller_daemon.turn.loop import LAST_STEP_NOTICE
from tiller_daemon.turn.unfinished import ANSWER, ANSWER_SOONER, GO_ON
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import (
    AnyBody,
    ErrorRaised,
    Event,
    HistoryCompacted,
    HistoryReverted,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    PlanUpdated,
    QueueChanged,
    RequestOpened,
    RequestResolved,
    SessionConfigured,
    SessionCreated,
    SessionTitled,
    StatusChanged,
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
    WarningRaised,
)
from tiller_protocol.fold import fold
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import (
    AssistantMessage,
    Citation,
    Image,
    Item,
    Notice,
    PlanEntry,
    QueuedInput,
    Reasoning,
    Request,
    ToolCall,
    Usage,
    UserMessage,
)
from tiller_protocol.settings import Rule, Settings
from tiller_protocol.snapshot import Snapshot, fork_base

PLAIN = Theme()
DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n a = 1\n-b = 2\n+b = 3\n"


def rendered(
    bodies: Sequence[AnyBody], *, width: int = 80, prompts: bool = True, wraps: bool = False
) -> str:
    renderer = Renderer(PLAIN, width, prompts=prompts, wraps=wraps)
    pieces = [p for seq, body in enumerate(bodies) for p in renderer.feed(event(seq, body))]
    return "".join(piece.text for piece in [*pieces, *renderer.end_line()])


def item_text(item: Item) -> str:
    return "\n".join(verb_lines(item, Facts(), 80, 80, PLAIN))


def event(seq: int, body: AnyBody) -> Event:
    return Event(seq, "s", float(seq), body)


def test_a_turn_reads_from_its_context_to_its_figures() -> None:
    bodies = [
        started(),
        *text_item("i1", "I ", "look."),
        *tool_call("i2", "bash", "pytest -q"),
        *text_item("i3", "Done."),
        ended("Done."),
    ]
    assert rendered(bodies) == (
        f"demo/m as build in /w · {local_time(0)}\n"
        "I look.\n"
        "● bash pytest -q ok 500 ms\n"
        "Done.\n"
        "■ completed · 1 step · 1.2k in, 30 out · 1.5 s\n"
    )


def test_a_failed_command_shows_its_status_and_the_end_of_its_output() -> None:
    output = "\n".join(f"line {number}" for number in range(40))
    text = rendered(tool_call("i", "bash", "make", state="completed", exit_status=2, output=output))
    assert text.startswith("● bash make exit 2 500 ms\n    … 30 more lines: tiller show --full\n")
    assert text.endswith("    line 39\n")


def test_of_an_output_that_was_cut_already_the_file_with_all_of_it_is_named() -> None:
    call = ToolCall(
        ItemId("i"), CallId("i"), "bash", "{}", "error", output="x\n" * 12, error_kind="failed"
    )
    assert "    … 2 more lines: tiller show --full\n    x\n" in rendered([ItemCompleted(call)])
    cut = structs.replace(call, spill_path="/s/i.txt")
    assert "    … whole output: /s/i.txt\n    x\n" in rendered([ItemCompleted(cut)])


def test_the_output_of_the_users_own_command_is_shown_also_when_it_succeeded() -> None:
    call = ToolCall(
        ItemId("i"), CallId("i"), "bash", "{}", "completed", output="two files\n", by_user=True
    )
    assert "    two files\n" in rendered([ItemCompleted(call)])


def test_a_hosted_call_is_shown_with_its_first_results_and_an_answer_with_its_sources() -> None:
    found = "\n".join(f"T{number} · https://example.com/{number}" for number in range(12))
    call = ToolCall(
        ItemId("i"),
        CallId("i"),
        "web_search",
        '{"query":"cats"}',
        "completed",
        output=found,
        by_provider=True,
    )
    shown = item_text(call)
    assert "web_search cats ok" in shown
    assert "    T0 · https://example.com/0\n" in shown
    assert "T10" not in shown
    assert "… 2 more lines" in shown
    source = Citation("https://example.com/", "Cats", "They exist.")
    cited = (source, source, Citation("", "cats.md\x1b[2J"))
    answer = AssistantMessage(ItemId("a"), "Cats exist.", "completed", cited)
    whole = transcript(Snapshot("01K", items=[answer]), PLAIN, 80)
    for text in (rendered([ItemCompleted(answer)]), whole):
        assert text.count("↗") == 2
        assert "    ↗ Cats · https://example.com/" in text
        assert "\x1b" not in text


def test_arguments_that_a_hook_changed_are_shown_with_the_call() -> None:
    call = ToolCall(
        ItemId("i"), CallId("c"), "bash", "{}", "completed", rewritten_arguments='{"command":"ls"}'
    )
    assert 'a hook changed the arguments to {"command":"ls"}' in item_text(call)


def test_tokens_that_nobody_counted_are_not_shown_as_none() -> None:
    assert rendered([TurnEnded("completed", 1, Usage(), 1.5)]) == "■ completed · 1 step · 1.5 s\n"


def test_input_that_waits_says_what_for() -> None:
    waiting = (QueuedInput("a", "use x", "steer"), QueuedInput("b", "then y", "queue"))
    text = rendered([QueueChanged(waiting)])
    assert text == "for the next step: use x\nqueued: then y\n"


def test_input_that_no_turn_takes_says_how_to_go_on() -> None:
    waiting = QueueChanged((QueuedInput("b", "then y", "queue"),), waits=True)
    ended = TurnEnded("failed", 1, Usage(), 1.5, queued=1)
    assert rendered([waiting, ended]).splitlines() == [
        "waits, because no turn is running: then y",
        "■ failed · 1 step · 1.5 s",
        "! 1 input waits; continue with: tiller resume s",
    ]


def test_a_compaction_says_how_much_it_gained() -> None:
    summarised, pruned = HistoryCompacted(12_000, 3_000, "i"), HistoryCompacted(900, 90)
    assert rendered([summarised, pruned]).splitlines() == [
        "≡ summarised: 12.0k → 3.0k tokens",
        "≡ old tool output left out: 900 → 90 tokens",
    ]


def test_a_title_is_not_told_to_whoever_just_typed_it() -> None:
    assert rendered([SessionTitled("Repair")], prompts=False) == ""
    assert rendered([SessionTitled("Repair")]) == "title: Repair\n"


def test_new_settings_are_named_and_what_always_allowed_is_not_said_twice() -> None:
    before = Settings(model="play/a")
    allowed = Settings(model="play/a", permissions=(Rule("bash", "ls *", "allow"),))
    other = Settings(model="play/b", approve="always", permissions=allowed.permissions)
    created = SessionCreated("/w", before)
    assert rendered([created, SessionConfigured(allowed)]) == ""
    shown = rendered([created, SessionConfigured(allowed), SessionConfigured(other)])
    assert shown == "new settings from the next turn on: model, approve\n"


def test_an_edit_shows_its_changed_lines_with_their_numbers() -> None:
    text = rendered(tool_call("i", "edit", "x.py", diff=DIFF))
    assert text.splitlines()[1:] == [
        "    1   a = 1",
        "    2 - b = 2",
        "    2 + b = 3",
    ]


def test_an_edit_shows_the_errors_that_it_made_below_its_lines() -> None:
    output = "Edited x.py at line 2.\n\nNew errors in x.py (ruff):\n  2:5 error: Undefined name `b`"
    text = rendered(tool_call("i", "edit", "x.py", diff=DIFF, output=output))
    assert text.splitlines()[-2:] == [
        "    New errors in x.py (ruff):",
        "      2:5 error: Undefined name `b`",
    ]
    assert "Edited" not in text


@pytest.mark.promise("B47")
def test_a_discarded_piece_is_told_from_the_good_one() -> None:
    bodies = [
        ItemStarted(AssistantMessage(ItemId("i1"), "", "streaming")),
        ItemDelta("i1", "text", "half"),
        ItemCompleted(AssistantMessage(ItemId("i1"), "half", "discarded")),
        *text_item("i2", "whole"),
    ]
    assert rendered(bodies) == "half\n(discarded: ignore the text above)\nwhole\n"


def test_text_whose_deltas_are_gone_from_the_log_is_written_whole_once() -> None:
    whole = ItemCompleted(AssistantMessage(ItemId("i1"), "whole text", "completed"))
    begun = ItemStarted(AssistantMessage(ItemId("i1"), "", "streaming"))
    assert rendered([begun, whole]) == "whole text\n"
    assert rendered([begun, ItemDelta("i1", "text", "whole "), whole]) == "whole text\n"
    assert rendered([whole]) == "whole text\n"


def test_thinking_is_marked_and_comes_before_the_answer_that_it_led_to() -> None:
    renderer = Renderer(PLAIN, 80)
    said = text_item("i1", "Yes.")
    bodies: list[AnyBody] = [
        ItemStarted(Reasoning(ItemId("r"), "", "streaming")),
        ItemDelta("r", "text", "**Look**\nhm"),
        *said[:-1],
        ItemCompleted(Reasoning(ItemId("r"), "**Look**\nhm", "completed")),
        said[-1],
    ]
    pieces = [p for seq, body in enumerate(bodies) for p in renderer.feed(event(seq, body))]
    thought = "∴ Thought for 2.0 s: Look\n  hm\n"
    assert "".join(p.text for p in pieces) == f"{thought}Yes.\n"
    assert "".join(p.text for p in pieces if p.kind == "progress") == thought


def test_thinking_that_only_the_provider_reads_is_not_shown() -> None:
    sealed = Reasoning(ItemId("r"), "", "completed", "openai_responses x y\n[]")
    bodies: list[AnyBody] = [
        ItemStarted(Reasoning(ItemId("r"), "", "streaming")),
        ItemCompleted(sealed),
        ItemCompleted(Reasoning(ItemId("r2"), "", "interrupted")),
        *text_item("i1", "Yes."),
    ]
    assert rendered(bodies) == "Yes.\n"
    snapshot = Snapshot("s", items=[sealed, AssistantMessage(ItemId("i1"), "Yes.", "completed")])
    assert "∴" not in transcript(snapshot, PLAIN, 80)


def test_escapes_of_models_and_tools_do_not_get_through() -> None:
    evil = "\x1b]0;owned\x07\x9b2J\r"
    bodies = [
        *text_item("i1", evil),
        *tool_call("i2", evil, evil, state="error", error_kind="failed", output=evil),
        *tool_call("i3", "edit", evil, diff=f"+{evil}"),
        RequestOpened(Request("r", "approval", evil, subjects=(evil,), detail=evil)),
        RequestResolved("r", "reject", evil, evil),
        SessionTitled(evil),
        WarningRaised("w", evil),
        StatusChanged("retry", 1, 3, 2.0, evil),
        PlanUpdated((PlanEntry(evil, "pending"),)),
        QueueChanged((QueuedInput("q", evil, "queue"),)),
        HistoryReverted(3, conflicts=(evil,)),
        ItemCompleted(UserMessage(ItemId("u"), evil, "steer", files=(evil,))),
    ]
    assert not set(rendered(bodies)) & {"\x1b", "\x07", "\x9b", "\r"}


def test_what_is_asked_is_never_cut_and_shows_every_line_of_a_command() -> None:
    command = "true " + "x" * 500 + "\nrm -rf ~"
    request = Request("r", "approval", "bash", subjects=(command,), always=("true *",))
    block = request_block(request, PLAIN, 80)
    assert block.replace("\n  ↳ ", "").splitlines() == [
        "? bash",
        f"  · true {'x' * 500}",
        "    rm -rf ~",
        "    “always” allows : true *",
    ]
    assert max(map(cells, block.splitlines())) < 80


def test_a_diff_is_shown_as_one_only_when_the_daemon_says_that_it_is_and_then_whole() -> None:
    painted = Theme("dark", 16)
    said = Request(
        "r", "approval", "Edit x.py", subjects=("x.py",), detail=DIFF, detail_kind="diff"
    )
    block = request_block(said, painted, 80)
    assert painted.bad("    -b = 2") in block.split("\n")
    assert painted.good("    +b = 3") in block.split("\n")
    plain = request_block(said, PLAIN, 80)
    assert plain == "? Edit x.py\n" + "\n".join(f"    {line}" for line in DIFF.splitlines())
    for kind in ("text", "command"):
        other = structs.replace(said, detail_kind=kind)
        assert "    -b = 2" in request_block(other, painted, 80).split("\n")


def test_what_is_in_the_title_already_is_not_said_twice() -> None:
    request = Request(
        "r", "approval", "Run ls", subjects=("ls",), detail="ls", detail_kind="command"
    )
    assert request_block(request, PLAIN, 80) == "? Run ls"
    for title, heading in (
        ("Run ls; ls", "Run a command"),
        ("Run with network access: ls; ls", "Run with network access"),
    ):
        two = structs.replace(request, title=title, detail="ls;\nls")
        assert request_block(two, PLAIN, 80).splitlines() == [
            f"? {heading}", "    ls;", "    ls"
        ]  # fmt: skip
    for title, heading in (
        ("Run git commit...", "Run a command"),
        (
            "It needs more than a build. Run again: git com...",
            "It needs more than a build. Run again",
        ),
        ("Something else...", "Something else..."),
    ):
        cut = structs.replace(request, title=title, detail="git commit -qam x", subjects=())
        assert request_block(cut, PLAIN, 80) == f"? {heading}\n    git commit -qam x"
    read = Request("r", "approval", "Read a b", subjects=("a b",))
    assert request_block(read, PLAIN, 80) == "? Read a b"
    assert request_block(structs.replace(read, subjects=("a  b",)), PLAIN, 80) == (
        "? Read a b\n  · a  b"
    )


def test_names_of_places_and_models_are_one_harmless_line() -> None:
    context = structs.replace(CONTEXT, workspace="/w\n? Run ls\n\x1b[2J", model="m\u202e")
    assert rendered([TurnStarted(context)]) == (
        f"m⟨U+202E⟩ as build in /w ? Run ls ␛[2J · {local_time(0)}\n"
    )


def test_a_retry_says_which_attempt_comes_when_and_why() -> None:
    text = rendered([StatusChanged("retry", 2, 10, 4.0, "overloaded")])
    assert text == "↻ retry 2 of 10 in 4.0 s: overloaded\n"


def test_the_moving_line_says_what_runs_and_for_how_long() -> None:
    renderer = Renderer(PLAIN, 40)
    call = ToolCall(ItemId("i"), CallId("c"), "bash", "", "pending")
    renderer.feed(event(1, ItemStarted(call)))
    renderer.feed(event(2, ItemDelta("i", "arguments", '{"command": "sle')))
    renderer.feed(event(3, ItemDelta("i", "arguments", 'ep 9"}')))
    assert renderer.moving_line(2.0) == ""
    renderer.feed(event(10, ToolCallUpdated("i", "running")))
    assert renderer.moving_line(12.5) == "○ bash sleep 9 running 2.5 s"
    renderer.feed(event(13, ItemCompleted(call)))
    assert renderer.moving_line(14.0) == ""


def test_the_moving_line_says_that_the_model_is_waited_for() -> None:
    renderer = Renderer(PLAIN, 40)
    renderer.feed(event(10, StepStarted(1)))
    assert renderer.moving_line(10.5) == ""
    assert renderer.moving_line(13.5) == "○ waiting for the model 3.5 s"
    renderer.feed(event(14, ItemDelta("i", "text", "Hm.")))
    assert renderer.moving_line(20.0) == ""


def test_the_moving_line_counts_down_to_the_next_attempt() -> None:
    renderer = Renderer(PLAIN, 40)
    renderer.feed(event(10, StatusChanged("retry", 2, 10, 4.0, "overloaded")))
    assert renderer.moving_line(11.0) == "↻ retry 2 of 10 in 3.0 s"
    assert renderer.moving_line(99.0) == "↻ retry 2 of 10 in 0 ms"
    renderer.feed(event(15, StatusChanged("busy")))
    assert renderer.moving_line(15.0) == ""


def test_what_comes_with_an_input_or_a_result_is_labelled() -> None:
    images, files = (Image("image/png", b"x" * 2_345),), ("src/a.py", "b\x1b.py")
    named, image = "[src/a.py] [b␛.py]", "[image: image/png, 2 KB]"
    message = UserMessage(ItemId("i1"), "look", "start", images, files)
    assert rendered([ItemCompleted(message)]) == f"» look {named}\n  {image}\n"
    assert (
        rendered([ItemCompleted(structs.replace(message, text=""))]) == f"»  {named}\n  {image}\n"
    )
    waiting = QueueChanged((QueuedInput("q", "then", "queue", images, files),))
    assert rendered([waiting]) == f"queued: then {named} [image/png, 2.3kB]\n"
    shown = tool_call("i2", "read", "shot.png", images=images)
    assert rendered(shown) == f"● read shot.png ok 500 ms\n    {image}\n"


def test_reasoning_is_announced_while_it_is_not_finished() -> None:
    renderer = Renderer(PLAIN, 40)
    renderer.feed(event(10, ItemStarted(Reasoning(ItemId("r"), "", "streaming"))))
    assert renderer.moving_line(11.0) == ""
    renderer.feed(event(12, ItemDelta("r", "text", "hm")))
    assert renderer.moving_line(13.0) == "∴ Thinking for 3.0 s"


def test_input_that_was_just_typed_is_not_repeated_but_steering_is_shown() -> None:
    bodies = [
        ItemCompleted(UserMessage(ItemId("u1"), "do it", "start")),
        ItemCompleted(UserMessage(ItemId("u2"), "not there", "steer")),
    ]
    assert rendered(bodies, prompts=False) == "» not there (steering)\n"
    assert rendered(bodies) == "» do it\n» not there (steering)\n"


def test_a_failed_turn_says_why() -> None:
    body = TurnEnded("failed", 1, Usage(), 0.1, error=ErrorInfo("x", "The model is not there."))
    assert "✗ The model is not there.\n" in rendered([started(), body])
    raised = ErrorRaised("x", "The model is not there.", fatal=True)
    assert rendered([started(), raised, body]).count("✗ The model is not there.\n") == 1
    assert rendered([started(), raised, body, started(), body]).count("✗ The model") == 2


@given(st.integers(20, 120), st.text(max_size=200))
def test_a_line_about_a_call_fits_the_screen(width: int, title: str) -> None:
    line = rendered(tool_call("i", "bash", title), width=width).split("\n")[0]
    assert cells(line) <= width


@each(
    ("arguments", "title"),
    [
        ('{"path": "a.py", "limit": 3}', "a.py"),
        ('{"command": "ls\\n-l"}', "ls -l"),
        ('{"other": 3}', ""),
        ("not json", ""),
        ("[]", ""),
        ("", ""),
    ],
)
def test_a_call_without_a_title_is_named_by_its_arguments(arguments: str, title: str) -> None:
    assert call_title(ToolCall(ItemId("i"), CallId("c"), "x", arguments, "pending")) == title


@each(
    ("cost", "unpriced", "shown"),
    [
        (None, 0, "idle · 0 turns"),
        (None, 3, "cost unknown"),
        (0.0042, 0, "$0.0042"),
        (0.0042, 1, "$0.0042 and 1 request of unknown price"),
        (0.0042, 2, "$0.0042 and 2 requests of unknown price"),
    ],
)
def test_a_transcript_says_what_is_known_of_the_cost(
    cost: float | None, unpriced: int, shown: str
) -> None:
    snapshot = Snapshot("01K", cost=cost, unpriced=unpriced)
    assert transcript(snapshot, PLAIN, 80).endswith(shown)


def test_a_transcript_shows_history_and_what_is_open_at_its_end() -> None:
    snapshot = Snapshot("01K")
    bodies = [
        SessionCreated("/w", Settings()),
        SessionTitled("Repair"),
        started(),
        ItemStarted(UserMessage(ItemId("u"), "do\nit", "start")),
        ItemCompleted(UserMessage(ItemId("u"), "do\nit", "start")),
        *text_item("i1", "Sure."),
        RequestOpened(Request("r", "approval", "bash", subjects=("ls",))),
    ]
    for seq, body in enumerate(bodies, 1):
        fold(snapshot, event(seq, body))
    text = transcript(snapshot, PLAIN, 80)
    began = f"turn 1 · {local_time(3)}"
    assert text.startswith(f"Repair\n01K · /w\n\n{began}\n» do\n  it\nSure.\n? bash\n  · ls\n")


@pytest.mark.parametrize(
    ("code", "text"),
    [("cut_off", GO_ON), ("cut_off", ANSWER_SOONER), ("empty_response", ANSWER)],
)
def test_a_person_sees_that_the_model_was_asked_again(code: str, text: str) -> None:
    notice = Notice(ItemId("n"), code, text)
    (line,) = rendered([ItemStarted(notice), ItemCompleted(notice)]).splitlines()
    assert line.startswith("▪ The ")
    assert any(words in line for words in ("cut off", "length limit", "empty"))


@each(
    ("code", "text", "line"),
    [
        ("interrupted", INTERRUPTED_NOTICE, "This turn was interrupted."),
        (
            "last_step",
            f"The turn's limit of $0.5 is reached. {LAST_STEP_NOTICE}",
            "The turn's limit of $0.5 is reached.",
        ),
        ("mode", MAY_WRITE.format(now="build", before="plan"), "The agent is build now."),
        ("mode", ONLY_READS.format(now="plan", before="build"), "The agent is plan now."),
        ("continued", CONTINUED_NOTICE, "The turn goes on without a new message."),
        ("resumed", RESUMED_NOTICE, "The daemon stopped during this turn and has restarted."),
        ("a_new_code", "Something has happened. You must check it.", "Something has happened."),
    ],
)
def test_a_notice_for_the_model_is_one_short_line_for_people(
    code: str, text: str, line: str
) -> None:
    notice = Notice(ItemId("n"), code, text)
    for wraps in (False, True):
        assert rendered([ItemCompleted(notice)], wraps=wraps).strip() == f"▪ {line}"


def session_of(*turns: list[AnyBody]) -> Snapshot:
    """A session with turns that begin every 100 seconds."""
    snapshot = Snapshot("01K")
    bodies: list[tuple[int, AnyBody]] = [(0, SessionCreated("/w", Settings()))]
    for number, turn in enumerate(turns):
        bodies += [(100 * number, body) for body in (started(), *turn, ended())]
    for seq, (time, body) in enumerate(bodies, 1):
        fold(snapshot, Event(seq, "s", float(time), body, f"t{time}"))
    return snapshot


def test_a_transcript_says_when_each_turn_began_and_how_long_it_took() -> None:
    snapshot = session_of([*text_item("i1", "One.")], [], [*text_item("i2", "Two.")])
    lines = transcript(snapshot, PLAIN, 80).splitlines()
    assert [line for line in lines if line.startswith("turn ")] == [
        f"turn {number} · {local_time(at)} · 1.5 s" for number, at in ((1, 0), (2, 100), (3, 200))
    ]
    assert lines.index("One.") < lines.index(f"turn 2 · {local_time(100)} · 1.5 s")


def test_a_turn_that_runs_says_since_when_and_no_duration() -> None:
    snapshot = session_of([*text_item("i1", "One.")])
    fold(snapshot, Event(snapshot.seq + 1, "s", 500.0, started(), "t5"))
    text = transcript(snapshot, PLAIN, 80)
    assert f"\nturn 2 · {local_time(500)}\n" in text


def test_a_transcript_says_below_a_turn_that_it_did_not_complete_and_why() -> None:
    snapshot = session_of([*text_item("i1", "One.")])
    broken = TurnEnded("failed", 1, Usage(), 2.0, error=ErrorInfo("quota", "No money is left."))
    stopped = TurnEnded("interrupted", 1, Usage(), 2.0)
    for number, end in enumerate((broken, stopped), 2):
        for body in (started(), *text_item(f"i{number}", f"{number}."), end):
            fold(snapshot, Event(snapshot.seq + 1, "s", 100.0 * number, body, f"t{number}"))
    assert transcript(snapshot, PLAIN, 80).splitlines()[2:15] == [
        "",
        f"turn 1 · {local_time(0)} · 1.5 s",
        "One.",
        "",
        f"turn 2 · {local_time(200)} · 2.0 s",
        "2.",
        "✗ No money is left.",
        "■ failed",
        "",
        f"turn 3 · {local_time(300)} · 2.0 s",
        "3.",
        "■ interrupted",
        "",
    ]
    last = transcript(snapshot, PLAIN, 80, tail=1)
    assert "■ interrupted" in last
    assert "No money" not in last, "it belongs to a turn that is not shown"


def test_of_a_transcript_the_last_items_are_shown_below_their_turn() -> None:
    sealed = Reasoning(ItemId("r"), "", "completed")
    hidden: list[AnyBody] = [ItemStarted(sealed), ItemCompleted(sealed)]
    snapshot = session_of(
        [*text_item("i1", "One."), *text_item("i2", "Two.")], [*text_item("i3", "3."), *hidden]
    )
    assert transcript(snapshot, PLAIN, 80, tail=2).splitlines()[2:9] == [
        "… 1 earlier item",
        "",
        f"turn 1 · {local_time(0)} · 1.5 s",
        "Two.",
        "",
        f"turn 2 · {local_time(100)} · 1.5 s",
        "3.",
    ]
    assert "earlier" not in transcript(snapshot, PLAIN, 80, tail=3)


@each(
    ("fields", "shown"),
    [
        ({"context_tokens": 150, "context_window": 1000, "branch": "main"}, "context 15 % · main"),
        ({"context_tokens": 0, "context_window": 1000, "branch": "main"}, "main"),
        ({"context_tokens": 996, "context_window": 1000}, "context 100 %"),
        ({"branch": "a\x1b[2J\n? Run ls"}, "a␛[2J ? Run ls"),
        ({"branch": "b" * 99}, "b" * 29 + "…"),
    ],
)
def test_the_last_line_of_a_turn_says_how_full_the_context_is_and_on_which_branch_it_is(
    fields: dict[str, Any], shown: str
) -> None:
    body = structs.replace(ended("x"), cost=0.01, **fields)
    line = f"■ completed · 1 step · 1.2k in, 30 out · $0.01 · {shown} · 1.5 s\n"
    assert rendered([body]) == line


@each(
    ("columns", "shown"),
    [
        (80, "■ completed · 1 step · 1.2k in, 30 out · $0.01 · context 15 % · 1.5 s"),
        (60, "■ completed · 1 step · 1.2k in, 30 out · $0.01 · 1.5 s"),
        (40, "■ completed · 1 step · $0.01 · 1.5 s"),
        (20, "■ completed · 1.5 s"),
    ],
)
def test_the_last_line_of_a_turn_leaves_out_what_does_not_fit(columns: int, shown: str) -> None:
    fields = {"context_tokens": 150, "context_window": 1000, "branch": "a-long-branch"}
    body = structs.replace(ended("x"), cost=0.01, **fields)
    assert turn_end_line(body, PLAIN, columns) == shown


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_line_about_a_turn_is_broken_by_the_terminal(width: int) -> None:
    why = "your access to this model has not been enabled for it yet, so ask for that first"
    bodies: list[AnyBody] = [
        started(),
        StatusChanged("retry", 2, delay_s=3.0, cause=why),
        RequestResolved("r1", "answer", "tiller answer", why),
        RequestResolved("r2", "reject", "tiller answer", why),
        HistoryReverted(0, restored=2, conflicts=("src/one.py", "src/two.py", "src/three.py")),
        structs.replace(ended("x"), cost=0.01, branch="a-long-branch", queued=2),
    ]
    text = rendered(bodies, width=width, wraps=True)
    assert max(map(cells, text.splitlines())) < width
    assert " ".join(text.split()).replace(" ·", "") == (
        " ".join(rendered(bodies).split()).replace(" ·", "")
    ), "nothing is left out"
    fork = session_of([*text_item("i1", "One.")])
    fork.branch, fork.settings = "a-long-branch", Settings(model="provider/model")
    fork.parent_id, fork.session_id = "01K0AAAAAAAAAAAAAAAAAAAAAA", "01K0BBBBBBBBBBBBBBBBBB"
    assert max(map(cells, transcript(fork, PLAIN, width, width - 1).splitlines())) < width


def test_what_always_here_means_is_wrapped_between_words() -> None:
    request = Request("r", "approval", "bash", always=("true *",), always_here="/home/ann")
    shown = request_block(request, PLAIN, 30).splitlines()
    assert shown[-3:] == [
        "    “always here” allows it",
        "    in every session of",
        "    /home/ann",
    ]


def test_a_transcript_of_a_fork_says_of_what_it_is_one() -> None:
    parent = session_of([*text_item("i1", "One.")], [*text_item("i2", "Two.")])
    fork = fork_base(parent, "01KFORK")
    created = SessionCreated("/w", Settings(), parent_id="01K0AAAAAAAAAAAAAAAAAASES1")
    fold(fork, Event(1, "01KFORK", 900.0, created))
    text = transcript(fork, PLAIN, 80)
    assert text.splitlines()[1] == "01KFORK · /w · fork of AAAASES1 at turn 2"
    assert "fork" not in transcript(parent, PLAIN, 80)
    running = started()
    fold(fork, Event(2, "01KFORK", 901.0, running, "t9"))
    fork.context_tokens = 500
    assert transcript(fork, PLAIN, 80).endswith(" · context 50 %")
