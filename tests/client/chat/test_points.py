"""The points to go back to: what began each turn, and how many files it changed."""

from tiller_client.chat.points import Point, points
from tiller_protocol.items import CallId, ItemId, Notice, Patch, ToolCall, UserMessage
from tiller_protocol.snapshot import Mark, Snapshot


def test_each_turn_is_a_point_with_its_first_line_and_its_files():
    items = [
        UserMessage(ItemId("i1"), "\n  repair the shop \nand more", "start"),
        UserMessage(ItemId("i2"), "steered", "steer"),
        Patch(ItemId("i3"), ("a.py", "b.py"), "t1", "t2"),
        Patch(ItemId("i4"), ("b.py",), "t2", "t3", more=2),
        ToolCall(ItemId("i5"), CallId("c"), "bash", "{}", "completed", title="make", by_user=True),
        Patch(ItemId("i6"), (), "", ""),
        Notice(ItemId("i7"), "continued", "Go on."),
        UserMessage(ItemId("i8"), "", "start", files=("shot.png",)),
    ]
    marks = [
        Mark("t1", 3, 0, at=10.0),
        Mark("t1", 5, 1, step=1),
        Mark("t2", 20, 4, at=20.0),
        Mark("t3", 30, 6),
        Mark("t4", 40, 7, at=40.0),
    ]
    assert points(Snapshot("s", items=items, marks=marks)) == [
        Point("t1", 3, "repair the shop", items[0].text, 10.0, 2, more_files=True),
        Point("t2", 20, "! make", "", 20.0, 0, more_files=True),
        Point("t3", 30, "", "", 0.0, 0, more_files=False),
        Point("t4", 40, "shot.png", "", 40.0, 0, more_files=False),
    ]
    assert points(Snapshot("s")) == []
