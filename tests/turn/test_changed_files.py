"""The files of a turn: patches of steps added up, against the files before and after them."""

from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.turn.changed_files import FILES_NAMED_MAX, changed_files
from tiller_protocol.ids import ItemId
from tiller_protocol.items import FileChange, Item, Notice, Patch

NAMES = ("a", "b", "c", "d")


def patch(*changes: FileChange, more: int = 0, tree: str = "t") -> Patch:
    return Patch(ItemId("p"), tuple(c.path for c in changes), tree, tree, changes, more)


def between(before: frozenset[str], after: frozenset[str], touched: frozenset[str]) -> Patch:
    """What a step did that left `after` of `before`, and changed what stayed and was touched."""
    return patch(
        *(FileChange(name, "added", 1, 0) for name in sorted(after - before)),
        *(FileChange(name, "removed", 0, 1) for name in sorted(before - after)),
        *(FileChange(name, "modified", 1, 1) for name in sorted(before & after & touched)),
    )


files = st.frozensets(st.sampled_from(NAMES))


@given(files, st.lists(st.tuples(files, files), max_size=6))
def test_the_sum_of_all_steps_is_what_came_what_went_and_what_was_touched(start, steps):
    here, touched, items = start, set[str](), list[Item]()
    for after, changed in steps:
        step = between(here, after, changed)
        touched.update(step.files)
        items += [step, Notice(ItemId("n"), "x", "y")]
        here = after
    found, more = changed_files(items)
    assert not more
    assert [one.path for one in found] == sorted(one.path for one in found)
    assert {one.path for one in found if one.kind == "added"} == here - start
    assert {one.path for one in found if one.kind == "removed"} == start - here
    assert {one.path for one in found if one.kind == "modified"} == touched & start & here
    assert not {one.path for one in found} - touched


def test_lines_add_up_and_a_file_that_is_not_text_has_none():
    items = [
        patch(FileChange("t", "modified", 3, 1), FileChange("i", "modified")),
        patch(FileChange("t", "modified", 2, 4), FileChange("i", "modified", 1, 1)),
    ]
    found, _ = changed_files(items)
    assert found == (FileChange("i", "modified"), FileChange("t", "modified", 5, 5))


def test_more_may_have_changed_if_a_step_is_unknown_or_a_list_was_cut():
    assert changed_files([patch(FileChange("a", "added", 1, 0))])[1] is False
    assert changed_files([patch(FileChange("a", "added", 1, 0), more=1)])[1] is True
    assert changed_files([Patch(ItemId("p"), ())])[1] is True
    many = [FileChange(f"{n}", "added", 1, 0) for n in range(FILES_NAMED_MAX + 1)]
    found, more = changed_files([patch(*many[:600]), patch(*many[600:])])
    assert (len(found), more) == (FILES_NAMED_MAX, True)
