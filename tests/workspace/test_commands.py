"""Custom commands: which text calls one, what it stands for."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.workspace.commands import (
    Command,
    CommandCall,
    expand,
    find_command,
    list_commands,
    read_call,
)
from tiller_daemon.workspace.front_matter import FILE_BYTES_MAX


def is_open(path):
    """Whether a file may be read unasked."""
    return path.name != "prod.env"


@pytest.fixture
def places(tmp_path):
    workspace, config = tmp_path / "w", tmp_path / "config"
    (workspace / ".tiller" / "commands").mkdir(parents=True)
    (config / "commands").mkdir(parents=True)
    return workspace, config


@each(
    ("text", "call"),
    [
        ("/review", CommandCall("review", "")),
        ("/review  HEAD~2\nand more ", CommandCall("review", "HEAD~2\nand more")),
        ("/re-view_2 x", CommandCall("re-view_2", "x")),
        (" /review", None),
        ("//review", None),
        ("/", None),
        ("/usr/bin is full", None),
        ("/../x", None),
        ("/a.md", None),
        ("/-x", None),
        ("say /review", None),
        ("/" + "x" * 65, None),
    ],
)
def test_only_a_slash_and_a_plain_name_call_a_command(text, call):
    assert read_call(text) == call


@each(
    ("template", "arguments", "text"),
    [
        ("Look at $1, then $2.", "a b c", "Look at a, then b."),
        ("Look at $1 and $3.", "a", "Look at a and ."),
        ("All: $ARGUMENTS!", " a  'b' ", "All: a  'b'!"),
        ("$1|$2|$3", "\"a b\" 'c d' don't", "a b|c d|don't"),
        ("$1|$2", "it's 'open", "it's|'open"),
        ("Do it.", "", "Do it."),
        ("Do it.", "soon", "Do it.\n\nsoon"),
        ("$1 costs $0 and $12", "x", "x costs $0 and x2"),
        ("$ARGUMENTSX $1", "y", "$ARGUMENTSX y"),
        ("$1 $2", "$2 $1", "$2 $1"),
        ("$1", "$(touch /tmp/x) `id` !`id` @/etc/passwd", "$(touch"),
    ],
)
def test_a_template_is_filled_in_once(template, arguments, text):
    assert expand(template, arguments.strip(), 1000) == text


def test_filling_in_ends_at_the_limit_before_the_text_is_made():
    assert expand("$ARGUMENTS " * 5000, "x" * 8_000_000, 8_000_000) is None


@given(st.text(), st.text().map(str.strip))
def test_no_argument_is_lost(template, arguments):
    text = expand(template, arguments, 10**6)
    assert text is not None
    if "$" not in template:
        assert text == f"{template.strip()}\n\n{arguments}".strip()


def test_the_users_command_goes_before_the_projects(places):
    workspace, config = places
    (config / "commands" / "a.md").write_text("---\ndescription: Mine\nagent: plan\n---\nmine")
    (workspace / ".tiller" / "commands" / "a.md").write_text("theirs")
    (workspace / ".tiller" / "commands" / "b.md").write_text(
        "---\nmodel: local/x\nagent: build\n---\ntheirs $1"
    )
    assert find_command("a", workspace, config, is_open) == Command(
        "a", "Mine", "plan", None, "mine"
    )
    assert find_command("b", workspace, config, is_open) == Command(
        "b", "", None, "local/x", "theirs $1"
    )
    assert find_command("c", workspace, config, is_open) is None
    assert [command.name for command in list_commands(workspace, config, is_open)] == ["a", "b"]
    assert [command.name for command in list_commands(None, config, is_open)] == ["a"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("---\n[\n---\nx", "front matter"),
        ("---\nx: y\n", "no end"),
        ("", "no text"),
        ("---\ndescription: d\n---\n \n", "no text"),
        ("x" * (FILE_BYTES_MAX + 1), "longer than 64 KiB"),
    ],
)
def test_a_command_that_cannot_be_used_says_why(places, text, problem):
    workspace, config = places
    (config / "commands" / "bad.md").write_text(text)
    (command,) = list_commands(workspace, config, is_open)
    assert problem in command.problem


@pytest.mark.promise("B60")
def test_a_projects_file_that_leads_out_of_it_is_no_command(places, tmp_path):
    workspace, config = places
    folder = workspace / ".tiller" / "commands"
    (tmp_path / "secret").write_text("secret")
    (folder / "a.md").symlink_to(tmp_path / "secret")
    (folder / "b.md").symlink_to("/dev/zero")
    os.mkfifo(folder / "c.md")
    (folder / "d.md").mkdir()
    (workspace / "prod.env").write_text("secret")
    (folder / "e.md").symlink_to("../../prod.env")
    out = f"its file was not read: a link leads out of {workspace}"
    asks = f"its file was not read: reading {workspace}/prod.env needs approval"
    assert list_commands(workspace, config, is_open) == (
        Command("a", problem=out),
        Command("b", problem=out),
        Command("e", problem=asks),
    )
