"""Content of any size goes through messages of limited size, whatever gets lost or repeated."""

from hypothesis import given
from hypothesis import strategies as st

from tiller_client.fleet.parts import PENDING_MAX, Parts, split


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=4), st.integers(1, 8), st.data())
def test_whole_messages_come_out_of_parts_in_any_mixture(
    messages: list[bytes], size: int, data: st.DataObject
) -> None:
    waiting = [list(split(message, size)) for message in messages]
    parts, whole = Parts(), list[bytes]()
    while waiting := [one for one in waiting if one]:
        body, headers = data.draw(st.sampled_from(waiting)).pop(0)
        assert len(body) <= size
        found = parts.add(("subject",), headers, body)
        whole += [found] if found is not None else []
    assert sorted(whole) == sorted(messages)


@given(st.binary(min_size=5, max_size=20), st.integers(0, 3))
def test_a_message_that_lacks_a_part_never_comes_out_but_its_repetition_does(
    message: bytes, missing: int
) -> None:
    parts = Parts()
    first = list(split(message, 1))
    del first[missing]
    assert [parts.add(("s",), headers, body) for body, headers in first].count(None) == len(first)
    again = [parts.add(("s",), headers, body) for body, headers in split(message, 1)]
    assert again[-1] == message


def test_messages_that_are_never_completed_do_not_fill_the_memory() -> None:
    parts = Parts()
    begun = [list(split(b"ab", 1)) for _ in range(PENDING_MAX + 1)]
    for (body, headers), _ in begun:
        assert parts.add(("s",), headers, body) is None
    ends = [parts.add(("s",), headers, body) for _, (body, headers) in begun]
    assert ends == [None, *[b"ab"] * PENDING_MAX]
