"""Token counts that no response can have are decoded as unknown in every dialect."""

import re

import pytest

from support.streams import STREAMS, WHOLE, decode
from tiller_protocol.items import Usage

COUNT = re.compile(rb'("\w+_tokens": ?)[1-9]\d*')
COUNTED = [name for name in WHOLE if COUNT.search(STREAMS[name])]


@pytest.mark.parametrize("count", [-1, 2**63, 10**30])
@pytest.mark.parametrize("name", COUNTED)
def test_a_count_out_of_range_is_unknown_and_the_answer_is_kept(name: str, count: int) -> None:
    plausible = decode(name, [STREAMS[name]])
    assert isinstance(plausible, dict)
    assert plausible["usage"] != Usage()
    changed = COUNT.sub(rb"\g<1>%d" % count, STREAMS[name])
    assert decode(name, [changed]) == {**plausible, "usage": Usage()}


def test_streams_of_every_dialect_have_counts() -> None:
    assert {name.partition("-")[0] for name in COUNTED} == {"chat", "messages", "responses"}
