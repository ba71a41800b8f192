"""A test that runs with each member of a corpus fails with all members that fail."""

import pytest

from support.each import each


def test_all_members_that_fail_are_named_whatever_they_raise() -> None:
    seen: list[int] = []

    @each("number, name", [(1, "one"), (2, "two"), (3, "three"), (4, "four")])
    def check(number: int, name: str) -> None:
        seen.append(number)
        assert number != 1
        with pytest.raises(ZeroDivisionError):
            assert 1 // (number - 3)

    with pytest.raises(
        ExceptionGroup, match="3 of 4 fail: number=1, name='one'; number=2"
    ) as failed:
        check()
    assert seen == [1, 2, 3, 4]
    assert [error.__notes__ for error in failed.value.exceptions][2] == [
        "with number=4, name='four'"
    ]


async def test_an_async_test_runs_with_each_pair_of_two_corpora() -> None:
    seen: list[tuple[int, int]] = []

    @each("one", [1, 2])
    @each("other", [1, 2])
    async def check(one: int, other: int) -> None:
        seen.append((one, other))
        assert one == other

    with pytest.raises(ExceptionGroup, match="2 of 2 fail: one=1; one=2"):
        await check()
    assert seen == [(1, 1), (1, 2), (2, 1), (2, 2)]
