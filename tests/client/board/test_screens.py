"""What a person sees of a board in every state that has a picture."""

from pathlib import Path

import pytest

from support.boards import NOW
from support.screens.boards import BOARD_SCREENS, BoardScreen
from tiller_client.board.frame import compose
from tiller_client.rendering.style import Theme

PICTURES = Path(__file__).parents[3] / "docs/board"


@pytest.mark.parametrize("size", [(100, 30), (200, 34)], ids=str)
@pytest.mark.parametrize("screen", BOARD_SCREENS, ids=lambda one: one.name)
def test_a_person_sees_it(screen: BoardScreen, size: tuple[int, int]) -> None:
    rows = compose(screen.make(size), size, NOW, 1.0, Theme()).frame.rows
    assert [text for text in screen.shows if text not in "\n".join(rows)] == []
    assert len(rows) == size[1]


def test_every_state_has_a_picture_and_every_picture_a_state() -> None:
    """`scripts/board_screens.py` draws them."""
    drawn = {path.name.split("-")[0] for path in PICTURES.glob("*.png")}
    assert drawn == {screen.name for screen in BOARD_SCREENS}
