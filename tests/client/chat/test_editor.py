"""The text that a user writes: its rows, what is pasted, what comes back."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tiller_client.chat.editor import PASTED_LINES_MIN, Editor
from tiller_client.chat.rows import EDITOR_ROWS_MAX, PROMPT, editor_rows
from tiller_client.rendering.text import cells

TEXTS = st.text("ab 界é\n", max_size=200)


@given(text=TEXTS, data=st.data(), width=st.integers(8, 40))
def test_rows_hold_the_text_and_the_cursor_is_in_its_place(
    text: str, data: st.DataObject, width: int
) -> None:
    at = data.draw(st.integers(0, len(text)))
    rows, (row, column) = editor_rows(text, at, width)
    assert 1 <= len(rows) <= EDITOR_ROWS_MAX
    assert all(cells(one) <= width for one in rows)
    assert 0 <= row < len(rows)
    contents = [one[len(PROMPT) :] for one in rows]
    assert column - cells(PROMPT) <= cells(contents[row])
    if len(rows) < EDITOR_ROWS_MAX:
        assert "".join(contents) == text.replace("\n", "")
        before = "".join(contents[:row]) + contents[row]
        position = column - cells(PROMPT)
        while cells(before) > cells("".join(contents[:row])) + position:
            before = before[:-1]
        assert before == text[:at].replace("\n", "")


@given(texts=st.lists(st.text("ab\n", min_size=1, max_size=30), max_size=6))
def test_what_was_pasted_is_sent_whole(texts: list[str]) -> None:
    editor = Editor()
    whole = ""
    for text in texts:
        long = text + "\n" * PASTED_LINES_MIN
        editor.buffer.insert_text(text)
        editor.paste(long)
        whole += text + long + " "
    assert editor.whole() == whole
    assert editor.buffer.text.count("[pasted") == len(texts)


def test_a_small_paste_is_text_and_carriage_returns_are_line_ends() -> None:
    editor = Editor()
    editor.paste("one\r\ntwo\rthree")
    assert editor.buffer.text == "one\ntwo\nthree"


def test_what_was_taken_is_the_newest_of_the_history() -> None:
    editor = Editor()
    editor.remember("first")
    editor.recall(["before", "second to none"])
    editor.put("third")
    assert editor.take() == "third"
    assert editor.is_empty
    assert editor.history == ["before", "second to none", "first", "third"]


def test_the_history_comes_without_taking_what_is_being_written() -> None:
    editor = Editor()
    editor.put("half a sen")
    editor.buffer.cursor_position = 4
    editor.recall(["from another session"])
    assert (editor.buffer.text, editor.buffer.cursor_position) == ("half a sen", 4)


def test_a_history_that_comes_late_takes_no_text_from_a_user_who_looks_back() -> None:
    async def look_back() -> None:
        editor = Editor()
        editor.remember("sent before")
        editor.buffer.load_history_if_not_yet_loaded()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        editor.buffer.insert_text("half a sentence")
        editor.buffer.history_backward()
        assert editor.buffer.text == "sent before"
        editor.recall(["from another session"])
        assert editor.buffer.text == "sent before"
        editor.buffer.history_forward()
        assert editor.buffer.text == "half a sentence"

    asyncio.run(look_back())


def test_a_text_that_is_replaced_can_be_brought_back() -> None:
    editor = Editor()
    editor.buffer.insert_text("half a sentence")
    editor.put("from the queue")
    assert editor.buffer.text == "from the queue"
    assert editor.history == ["half a sentence"]
