"""Token counts that no response can have are decoded as unknown in every dialect."""

import re
from typing import Any

from support.each import each
from support.streams import STREAMS, WHOLE, decode, wire_of
from tiller_protocol.items import Usage

COUNT = re.compile(rb'("\w+_tokens": ?)[1-9]\d*')
COUNTED = [name for name in WHOLE if COUNT.search(STREAMS[name])]


@each("count", [-1, 2**63, 10**30])
@each("name", COUNTED)
def test_a_count_out_of_range_is_unknown_and_the_answer_is_kept(name: str, count: int) -> None:
    plausible = decode(name, [STREAMS[name]])
    assert isinstance(plausible, dict)
    assert plausible["usage"] != Usage()
    changed = COUNT.sub(rb"\g<1>%d" % count, STREAMS[name])
    assert decode(name, [changed]) == {**plausible, "usage": Usage()}


@each("form", [b"%s.0", b'"%s"', b'"%s.0"', b"%se0"])
def test_a_count_of_another_form_is_read(form: bytes) -> None:
    for name in COUNTED:
        changed = COUNT.sub(
            lambda found: found[1] + form % found[0][len(found[1]) :], STREAMS[name]
        )
        assert changed != STREAMS[name]
        assert decode(name, [changed]) == decode(name, [STREAMS[name]])


def answer(name: str, stream: bytes) -> dict[str, Any]:
    """The answer without its usage."""
    decoded = decode(name, [stream])
    assert isinstance(decoded, dict), decoded
    return {**decoded, "usage": None}


@each("count", [b"[]", b"{}", b'"many"', b"true", b'"nan"', b'"inf"', b"null"])
def test_a_count_that_is_no_number_costs_no_answer(count: bytes) -> None:
    for name in COUNTED:
        assert answer(name, COUNT.sub(rb"\g<1>" + count, STREAMS[name])) == answer(
            name, STREAMS[name]
        )


USAGE = re.compile(rb'"usage": ?\{(?:[^{}]|\{[^{}]*\})*\}')


@each("usage", [b"[]", b"7", b'"unknown"', b"false"])
def test_usage_of_any_type_costs_no_answer(usage: bytes) -> None:
    for name in COUNTED:
        changed = USAGE.sub(b'"usage":' + usage, STREAMS[name])
        assert changed != STREAMS[name]
        assert answer(name, changed) == answer(name, STREAMS[name])


def test_streams_of_every_dialect_have_counts() -> None:
    assert set(map(wire_of, COUNTED)) == set(map(wire_of, STREAMS))
