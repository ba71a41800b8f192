"""Items, diffs and images read well, fit the width, and are safe on a terminal."""

import io
import re
from difflib import unified_diff

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

from tiller_client.rendering.diff import diff_lines
from tiller_client.rendering.facts import Durations, Facts
from tiller_client.rendering.images import CHUNK_CHARS, ROWS_MAX, image_label, image_lines
from tiller_client.rendering.items import PROMPT_ROWS_SHOWN, item_lines, plan_lines
from tiller_client.rendering.style import TRUECOLOR, Theme, width
from tiller_client.rendering.text import on_screen, sanitized
from tiller_protocol.events import Event, ItemCompleted, ItemStarted
from tiller_protocol.ids import ItemId
from tiller_protocol.items import (
    AssistantMessage,
    Citation,
    Compaction,
    FileChange,
    Image,
    Notice,
    Patch,
    PlanEntry,
    Reasoning,
    SubAgent,
    ToolCall,
    Usage,
    UserMessage,
)

NO_COLOUR = Theme()
COLOURED = Theme("dark", TRUECOLOR, links=True)
THEMES = st.sampled_from([NO_COLOUR, COLOURED, Theme("light", 256), Theme("dark", 16)])
OURS = re.compile(r"\x1b\[[0-9;]+m|\x1b\]8;;[!-~]*\x1b\\")

HOSTILE = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *("\x1b[2J", "\x1b]0;x\x07", "\x9b31m", "\u202e", "\u2066", "\r", "\n", "\n\n"),
                *("日本語 ", "word ", "@@ -1,2 +1,2 @@\n", "-a b\n", "+a c\n", " d\n", "\t"),
                *("--- a/x.py\n", "+++ b/x.py\n", "\\ none\n", "**", "x" * 90, "\ud800"),
                *("```\n", "⚠\ufe0f"),
            ]
        ),
        st.text(max_size=6),
    ),
    max_size=12,
).map("".join)
SECONDS = st.none() | st.floats(0, 1e6)


def png(columns: int, rows: int) -> Image:
    data = io.BytesIO()
    Pillow.effect_noise((columns, rows), 90).save(data, "PNG")
    return Image("image/png", data.getvalue())


PICTURE = png(6, 4)
CALLS = st.builds(
    ToolCall,
    id=st.sampled_from(["c1", "c2"]),
    call_id=st.just("c"),
    name=HOSTILE,
    arguments=HOSTILE,
    state=st.sampled_from(["pending", "running", "completed"]),
    title=HOSTILE,
    output=HOSTILE,
    diff=st.just("") | HOSTILE,
    images=st.just(()) | st.just((PICTURE,)),
    exit_status=st.sampled_from([None, 0, 1]),
    started_at=SECONDS,
    duration_s=SECONDS,
    by_provider=st.booleans(),
    by_user=st.booleans(),
    spill_path=HOSTILE,
    rewritten_arguments=HOSTILE,
    sub_agent=st.none() | st.builds(SubAgent, st.just("s"), HOSTILE),
)
ITEMS = st.one_of(
    CALLS,
    st.builds(UserMessage, st.just("u"), HOSTILE, st.just("steer"), files=st.tuples(HOSTILE)),
    st.builds(
        AssistantMessage, st.just("a"), HOSTILE, st.just("interrupted"),
        st.tuples(st.builds(Citation, HOSTILE, HOSTILE)),
    ),
    st.builds(Reasoning, st.just("r"), HOSTILE, st.sampled_from(["streaming", "completed"])),
    st.builds(Compaction, st.just("k"), HOSTILE, st.just("u")),
    st.builds(Notice, st.just("n"), HOSTILE, HOSTILE),
    st.builds(
        Patch, st.just("p"), st.tuples(HOSTILE), st.just("t"), st.just("t"),
        st.tuples(st.builds(FileChange, HOSTILE, st.just("added"))),
    ),
)  # fmt: skip


@given(ITEMS, st.lists(CALLS, max_size=3), st.integers(40, 200), THEMES, st.booleans(), SECONDS)
def test_every_item_fits_and_is_safe(item, others, columns, theme, opened, now):
    facts = Facts([*others, item], now, children={"s": others})
    for line in map(on_screen, item_lines(item, facts, columns, theme, opened=opened)):
        shown = OURS.sub("", line)
        assert sanitized(shown) == shown
        assert "\n" not in shown
        assert width(line) <= columns
        if theme.kind == "none":
            assert shown == line


@given(HOSTILE, st.integers(40, 120), THEMES, st.sampled_from([3, 1000]))
def test_any_text_can_be_read_as_a_diff(diff, columns, theme, lines_max):
    for line in map(on_screen, diff_lines(diff, columns, theme, lines_max=lines_max)):
        assert sanitized(OURS.sub("", line)) == OURS.sub("", line)
        assert width(line) <= columns


def call(**fields: object) -> ToolCall:
    given_fields = {"id": "c", "call_id": "c", "name": "bash", "arguments": "{}"} | fields
    return ToolCall(**{"state": "completed", **given_fields})  # pyright: ignore[reportArgumentType]


def test_of_an_output_that_was_cut_before_the_file_with_all_of_it_is_named():
    """The number of its lines would be wrong."""
    seq = call(output="1\n2\n" * 1_000, exit_status=0, spill_path="/tmp/whole.txt")
    *_, more, _, _, _, _, _ = item_lines(seq, Facts(), 80, Theme("none"))
    assert more.strip() == "… whole output: /tmp/whole.txt"


READ = call(id="1", name="read", title="a.py", started_at=10.0, duration_s=8.0)
TEST = call(id="2", title="make", started_at=14.0, duration_s=4.0, exit_status=2, output="E\n")
GREP = call(id="3", name="grep", title="x", state="running", started_at=20.0, ordinal=1)
LATER = call(id="4", name="ls", started_at=19.0, duration_s=1.0)
TOGETHER = Facts([READ, TEST, LATER, GREP], 23.0)


def test_a_call_is_one_line_and_the_end_of_its_output():
    lone = Facts([TEST])
    assert item_lines(TEST, lone, 40, NO_COLOUR) == ["● bash make exit 2 4.0 s", "    E"]
    assert item_lines(GREP, TOGETHER, 40, NO_COLOUR) == ["○ grep x running 3.0 s"]
    lines = call(exit_status=0, output="".join(f"{at}\n" for at in range(9)))
    shown = item_lines(lines, lone, 40, NO_COLOUR)
    assert shown == ["● bash ok", "    … 4 more lines", *(f"    {at}" for at in range(4, 9))]
    assert len(item_lines(lines, lone, 40, NO_COLOUR, opened=True)) == 10
    assert item_lines(call(name="read", output="a\nb"), lone, 40, NO_COLOUR) == ["● read ok"]
    progress = call(state="running", output="1 %\r50 %")
    assert item_lines(progress, lone, 40, NO_COLOUR)[1:] == ["    50 %"]
    long = call(exit_status=0, output="日" * 50)
    assert item_lines(long, lone, 40, NO_COLOUR)[1] == "    " + "日" * 17 + "…"
    (_, first, second, *_) = item_lines(long, lone, 40, NO_COLOUR, opened=True)
    assert (first, second) == ("    " + "日" * 18,) * 2


def test_calls_that_ran_side_by_side_show_when():
    for columns, end in ((80, 80), (200, 100)):
        lines = [item_lines(one, TOGETHER, columns, NO_COLOUR)[0] for one in (READ, TEST)]
        assert [len(line) for line in lines] == [end, end], "bars stand below each other"
    (line,) = item_lines(READ, TOGETHER, 80, NO_COLOUR)
    assert line.split() == ["●", "read", "a.py", "ok", "8.0", "s", "━" * 16]
    assert item_lines(TEST, TOGETHER, 80, NO_COLOUR)[0].endswith(" ┄┄┄┄┄┄┄┄━━━━━━━━")
    assert item_lines(TEST, TOGETHER, 40, NO_COLOUR)[0].endswith(" ∥2")
    assert item_lines(GREP, TOGETHER, 80, NO_COLOUR) == ["○ grep x running 3.0 s"]
    assert item_lines(LATER, TOGETHER, 80, NO_COLOUR) == ["● ls ok 1.0 s"]


def test_a_sub_agent_shows_below_its_call_what_it_does():
    agent = SubAgent("s", "explore", 3, Usage(input_tokens=2100))
    task = call(name="task", title="look", state="running", sub_agent=agent)
    facts = Facts([task], 23.0, children={"s": [READ, GREP]})
    assert item_lines(task, facts, 80, NO_COLOUR) == [
        "○ task look running",
        "    explore · 3 steps · 2.1k tokens",
        "    ● read a.py ok 8.0 s",
        "    ○ grep x running 3.0 s",
    ]
    inner = call(name="task", title="deeper", state="running", sub_agent=SubAgent("t", "helper"))
    nested = Facts([task], 23.0, children={"s": [inner], "t": [GREP]})
    assert item_lines(task, nested, 80, NO_COLOUR)[2:] == [
        "    ○ task deeper running",
        "        helper · 0 steps",
        "        ○ grep x running 3.0 s",
    ]


def test_a_finished_sub_agent_is_folded_and_opens():
    agent = SubAgent("s", "explore", 3)
    task = call(name="task", title="look", sub_agent=agent)
    facts = Facts([task], None, children={"s": [TEST, GREP]})
    folded = ["● task look ok", "    explore · 3 steps"]
    assert item_lines(task, facts, 80, NO_COLOUR) == folded
    opened = item_lines(task, facts, 80, NO_COLOUR, opened=True)
    assert opened == [*folded, "    ● bash make exit 2 4.0 s", "        E", "    ● grep x"]


def test_reasoning_is_one_line_with_its_time_and_opens():
    durations = Durations()
    begun = Reasoning(ItemId("r"), "", "streaming")
    ended = Reasoning(ItemId("r"), "**Look first**\n\nThen *act*.", "completed")
    durations.note(Event(1, "s", 100.0, ItemStarted(begun)))
    facts = Facts([begun], 102.0, durations)
    assert item_lines(begun, facts, 40, NO_COLOUR) == ["∴ Thinking for 2.0 s"]
    durations.note(Event(2, "s", 103.0, ItemCompleted(ended)))
    head = "∴ Thought for 3.0 s: Look first"
    assert item_lines(ended, facts, 40, NO_COLOUR) == [head]
    opened = item_lines(ended, facts, 40, NO_COLOUR, opened=True)
    assert opened == [head, "  Then act."]


def test_input_is_shown_with_what_is_attached_and_cut_if_it_is_long():
    message = UserMessage(ItemId("u"), "look at this one\nplease", "queue", (PICTURE,), ("a.py",))
    label = f"  [image: image/png, 6x4, {len(PICTURE.data)} B]"
    assert item_lines(message, Facts(), 40, NO_COLOUR) == [
        "» look at this one", "  please [a.py] (queued)", label,
    ]  # fmt: skip
    pasted = UserMessage(ItemId("u"), "line\n" * 120, "start")
    shown = item_lines(pasted, Facts(), 40, NO_COLOUR)
    assert len(shown) == PROMPT_ROWS_SHOWN + 1
    assert shown[-1] == "  … 100 more lines"
    assert len(item_lines(pasted, Facts(), 40, NO_COLOUR, opened=True)) == 120


def test_the_plan_is_a_checklist():
    plan = [
        PlanEntry("read", "completed"),
        PlanEntry("write it all down", "in_progress"),
        PlanEntry("test", "pending"),
    ]
    expected = ["  ☑ read", "  ◐ write it all", "    down", "  ☐ test"]
    assert plan_lines(plan, 18, NO_COLOUR) == expected


BEFORE = ["def add(a, b):", '    """Sum."""', "    return a + b", "", "x = 1", "y = 2"]
AFTER = ["def add(a, c):", '    """Sum."""', "    return a + c", "", "x = 1", "z = 3", "y = 2"]
DIFF = "\n".join(unified_diff(BEFORE, AFTER, "a/x.py", "b/x.py", lineterm="", n=1))


def test_a_diff_has_the_numbers_of_its_lines():
    assert diff_lines(DIFF, 40, NO_COLOUR) == [
        "1 - def add(a, b):",
        "1 + def add(a, c):",
        '2       """Sum."""',
        "3 -     return a + b",
        "3 +     return a + c",
        "4",
        "5   x = 1",
        "6 + z = 3",
        "7   y = 2",
    ]


def test_a_diff_is_cut_with_a_count_and_wraps_long_lines():
    assert diff_lines(DIFF, 40, NO_COLOUR, lines_max=2)[2:] == ["… 7 more lines"]
    assert diff_lines(DIFF, 12, NO_COLOUR)[:2] == ["1 - def add(", "    a, b):"]


def test_a_diff_of_several_files_names_them_and_what_it_can_not_show():
    several = (
        f"diff --git a/x.py b/x.py\nindex 1..2\n{DIFF}\ndiff --git a/i b/i\nGIT binary patch\n"
        "literal 3\nabc\n\ndiff --git a/o b/o\n--- a/o\n+++ /dev/null\n@@ -9 +0,0 @@\n--- x\n"
        "\\ No newline at end of file\n"
    )
    shown = diff_lines(several, 40, NO_COLOUR)
    assert shown[0] == "x.py"
    assert shown[-5] == "i"
    assert shown[-4:] == ["(binary)", "o", "9 - -- x", "  No newline at end of file"]


MODES = """\
diff --git a/one.py b/one.py
new file mode 100644
index 0000000..1111111
--- /dev/null
+++ b/one.py
@@ -0,0 +1 @@
+x = 1
diff --git a/run.sh b/run.sh
old mode 100644
new mode 100755
diff --git a/gone.py b/gone.py
deleted file mode 100644
--- a/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-y = 2
"""


def test_a_files_name_is_above_its_mode():
    assert diff_lines(MODES, 40, NO_COLOUR) == [
        *("one.py", "new file mode 100644", "1 + x = 1"),
        *("run.sh", "old mode 100644", "new mode 100755"),
        *("gone.py", "deleted file mode 100644", "1 - y = 2"),
    ]


def test_a_changed_line_that_looks_like_a_header_of_a_file_is_not_lost():
    diff = "--- a/x.sql\n+++ b/x.sql\n@@ -1,1 +1,1 @@\n--- old comment\n+++ new\n"
    assert diff_lines(diff, 40, NO_COLOUR) == ["1 - -- old comment", "1 + ++ new"]


def test_changed_words_stand_out_and_code_has_its_colours():
    first, second, *_ = map(on_screen, diff_lines(DIFF, 40, COLOURED))
    keyword, word = "\x1b[38;2;199;146;234;48;2;66;24;27mdef\x1b[0m", "\x1b[48;2;138;42;42mb\x1b[0m"
    assert keyword in first
    assert word in first
    assert "\x1b[48;2;31;127;42mc\x1b[0m" in second
    few = on_screen(diff_lines(DIFF, 40, Theme("dark", 16))[0])
    assert "\x1b[31;1;4mb\x1b[0m" in few
    assert "35m" not in few
    removed, added = diff_lines(DIFF, 40, Theme("dark", 256))[:2]
    assert removed.split("48;5;")[1][:2] != added.split("48;5;")[1][:2]


@pytest.mark.parametrize("lines", [30, 3000])
def test_the_words_of_huge_changes_are_not_compared(lines):
    old, new = [f"a b c {at}" for at in range(lines)], [f"a b d {at}" for at in range(lines)]
    diff = "\n".join(unified_diff(old, new, "a/x", "b/x", lineterm=""))
    marked = sum("42;42m" in line for line in diff_lines(diff, 80, COLOURED))
    assert marked == (30 if lines == 30 else 0)


def test_a_history_that_names_itself_as_its_sub_agent_is_shown_once():
    agent = SubAgent("s", "scout")
    calls = [call(id=str(number), state="running", sub_agent=agent) for number in range(3)]
    lines = item_lines(calls[0], Facts(calls, 1.0, children={"s": calls}), 200, NO_COLOUR)
    assert len(lines) < 20


def test_an_image_is_drawn_where_the_terminal_can():
    image = png(640, 400)
    kitty = [*map(on_screen, image_lines(image, 60, Theme("dark", 256, pictures="kitty")))]
    drawn = kitty[ROWS_MAX - 1]
    assert kitty[: ROWS_MAX - 1] == [""] * (ROWS_MAX - 1)
    assert drawn.startswith(f"\x1b[{ROWS_MAX - 1}A\x1b_Ga=T,f=100,q=2,c=52,r=16,m=1;")
    chunks = re.findall(r"\x1b_G[^;]*;([^\x1b]*)\x1b\\", drawn)
    assert max(map(len, chunks)) == CHUNK_CHARS
    assert "m=0;" in drawn
    assert len(kitty) == ROWS_MAX + 1
    iterm = image_lines(image, 60, Theme("dark", 256, pictures="iterm2"))
    assert "\x1b]1337;File=inline=1;" in on_screen(iterm[ROWS_MAX - 1])


def test_an_image_is_drawn_only_into_lines_that_are_final():
    drawing = Theme("dark", 256, pictures="kitty")
    message = UserMessage(ItemId("u"), "look", "start", (png(640, 400),))
    assert "\x1b_G" in on_screen("".join(item_lines(message, Facts(), 60, drawing)))
    assert "\x1b_G" not in on_screen("".join(item_lines(message, Facts(now=1.0), 60, drawing)))


def test_an_image_that_can_not_be_drawn_has_a_label():
    kilobytes = Image("image/png", png(640, 400).data.ljust(84_000, b"\0"))
    assert image_label(kilobytes) == f"[image: image/png, 640x400, {_kb(kilobytes)} KB]"
    broken = Image("image/png", b"\x89PNG\r\n\x1a\n" + b"x" * 20)
    (label,) = image_lines(broken, 60, Theme("dark", 256, pictures="kitty"))
    assert on_screen(label).endswith("[image: image/png, 28 B]\x1b[0m")
    escape = Image("a\x1b[2J.png", PICTURE.data)
    assert image_lines(escape, 60, NO_COLOUR)[0].startswith("[image: a␛[2J.png, 6")
    assert image_label(Image("application/pdf", b"x", pages=3)) == (
        "[document: application/pdf, 3 pages, 1 B]"
    )


def _kb(image: Image) -> int:
    return round(len(image.data) / 1000)


def test_a_message_that_no_user_wrote_has_another_mark() -> None:
    report = UserMessage(ItemId("u"), "t1 has ended.", "start", client="task")
    assert item_lines(report, Facts(), 80, Theme()) == ["· t1 has ended."]
