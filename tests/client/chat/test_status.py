"""The status line: the most important parts first, and who else is there."""

from tiller_client.chat.status import Facts, beside, status_line
from tiller_client.text import cells
from tiller_protocol.snapshot import Snapshot


def test_the_other_frontends_are_named_each_name_once():
    assert beside(("neovim",)) == "neovim"
    assert beside(("neovim", "tiller chat", "tiller chat")) == "neovim, tiller chat (2)"
    assert beside(("",)) == "unnamed"
    assert beside(("a\x1b[31m\nb",)).isprintable()
    assert cells(beside(tuple(f"name {n}" for n in range(50)))) <= 40


def test_the_line_says_who_else_is_there_where_there_is_room():
    facts = Facts("p/model", "build", beside=("neovim",))
    assert status_line(Snapshot("s"), facts, 0.0, 80) == "model · build · also: neovim"
    assert status_line(Snapshot("s"), facts, 0.0, 20) == "model · build"
