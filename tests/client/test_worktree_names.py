"""Which worktree a command line asks for, and where words stand that could mean several things."""

import re
from argparse import Namespace

import pytest

from support.each import each
from tiller_client.command_line.arguments import parse
from tiller_client.command_line.prompt import read_worktree, worktree_name


@each(
    ("task", "begins"),
    [
        ("Add dark mode", "add-dark-mode-"),
        ("fix `a/b.py`: it fails when there is no file", "fix-a-b-py-"),
        ("x" * 99, "x" * 32 + "-"),
    ],
)
def test_a_new_worktree_is_named_after_its_task_and_never_like_another_one(
    task: str, begins: str
) -> None:
    name = worktree_name(task)
    assert re.fullmatch(rf"{begins}[0-9a-f]{{4}}", name)
    assert len({worktree_name(task) for _ in range(9)}) > 1


def test_a_task_without_letters_leaves_the_name_to_the_daemon() -> None:
    assert worktree_name("直して") == ""


def test_the_prompt_names_the_worktree_only_if_no_name_is_given() -> None:
    for given, begins in (("", "add-dark-mode-"), ("dark", "dark")):
        arguments = Namespace(worktree=given, base=None, prompt="add dark mode")
        choice = read_worktree(arguments)
        assert choice is not None
        assert choice.name.startswith(begins)


def test_a_directory_may_stand_before_the_verb() -> None:
    parsed = parse(["-C", "../x", "board", "repo:a"])
    assert (parsed.verb, parsed.directory, parsed.filter) == ("board", "../x", ["repo:a"])
    parsed = parse(["-C", "../x", "mend it"])
    assert (parsed.verb, parsed.directory, parsed.session) == ("chat", "../x", "mend it")


def test_a_worktree_verb_needs_no_name_but_to_restore_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert parse(["worktree", "land"]).name == ""
    assert parse(["worktree", "rm"]).names == []
    with pytest.raises(SystemExit):
        parse(["worktree", "restore"])
    assert "NAME" in capsys.readouterr().err
