"""Messages over descriptors: whole whatever the pieces, answers to those who asked."""

import itertools
import json
import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from support.each import each
from tiller_client.acp.rpc import READ_BYTES, Message, Peer, RpcError

LINES = st.lists(
    st.one_of(
        st.builds(lambda name, n: {"method": name, "id": n}, st.text(), st.integers(0, 9)),
        st.builds(lambda name: {"method": name, "params": {"text": name}}, st.text()),
        st.builds(lambda n: {"id": n, "result": {}}, st.integers(-1, 9)),
    ),
    max_size=8,
)


class Wire:
    """A peer, and the client's ends of its two pipes."""

    def __enter__(self) -> "Wire":
        reading, self.write_end = os.pipe()
        self.read_end, writing = os.pipe()
        self.descriptors = [reading, self.write_end, self.read_end, writing]
        self.peer = Peer(reading, writing)
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.descriptors:
            os.close(one)

    def send(self, data: bytes) -> list[Message]:
        os.write(self.write_end, data)
        return self.peer.read()

    def sent(self) -> list[Any]:
        return [json.loads(line) for line in os.read(self.read_end, READ_BYTES).splitlines()]


@given(lines=LINES, cuts=st.lists(st.integers(0, 2000), max_size=6), end=st.sampled_from("\n\r"))
def test_messages_are_whole_however_they_are_cut(
    lines: list[dict[str, Any]], cuts: list[int], end: str
) -> None:
    ending = "\r\n" if end == "\r" else "\n"
    data = "".join(json.dumps({"jsonrpc": "2.0", **line}) + ending for line in lines).encode()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    with Wire() as wire:
        got = [
            message
            for begin, until in itertools.pairwise(places)
            for message in wire.send(data[begin:until])
        ]
    expected = [line for line in lines if "method" in line]
    assert [message.method for message in got] == [line["method"] for line in expected]
    assert [message.id for message in got] == [line.get("id", UNSET) for line in expected]


def test_an_answer_goes_to_who_asked_and_only_once() -> None:
    answers: list[tuple[Any, Any]] = []

    with Wire() as wire:
        numbers = [
            wire.peer.request("ask", {}, lambda result, error: answers.append((result, error)))
            for _ in range(3)
        ]
        wire.peer.forget(numbers[1])
        lines = [
            {"id": numbers[0], "error": {"code": 1, "message": "no"}},
            {"id": numbers[1], "result": {}},
            {"id": numbers[2], "result": {"a": 1}},
            {"id": numbers[2], "result": {"a": 2}},
            {"id": "7", "result": None},
        ]
        assert wire.send(b"".join(json.dumps(line).encode() + b"\n" for line in lines)) == []
        assert [line["method"] for line in wire.sent()] == ["ask"] * 3
    assert [error for _, error in answers] == [RpcError(1, "no"), None]
    assert [bytes(result) for result, _ in answers if result] == [b'{"a": 1}']


@each("result", [None, {}, [], "text"])
def test_a_result_may_be_any_value(result: object) -> None:
    answers: list[Any] = []
    with Wire() as wire:
        number = wire.peer.request("ask", {}, lambda result, error: answers.append((result, error)))
        wire.send(json.dumps({"id": number, "result": result}).encode() + b"\n")
    [(got, error)] = answers
    assert (json.loads(bytes(got)), error) == (result, None)


@each(
    ("text", "means"),
    [
        (r"cut \ud83d", "cut \ufffd"),
        (r"\udE00 cut", "\ufffd cut"),
        (r"\uD83D\uD83D\uDE00!", "\ufffd\N{GRINNING FACE}!"),
        (r"C:\\ud83d", r"C:\ud83d"),
        (r"\\\ud83d\"", '\\\ufffd"'),
        (r"\u00fc", "\N{LATIN SMALL LETTER U WITH DIAERESIS}"),
    ],
)
def test_half_of_a_surrogate_pair_is_a_replacement_character(text: str, means: str) -> None:
    with Wire() as wire:
        line = f'{{"id": 5, "method": "say", "params": {{"text": "{text}"}}}}\n'
        (message,) = wire.send(line.encode())
    assert message.id == 5
    assert json.loads(bytes(message.params)) == {"text": means}


def test_the_end_of_the_input_is_noted() -> None:
    with Wire() as wire:
        wire.send(b"{}")
        assert not wire.peer.ended
        os.close(wire.write_end)
        wire.descriptors.remove(wire.write_end)
        assert wire.peer.read() == []
        assert wire.peer.ended
