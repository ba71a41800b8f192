"""What is offered for a name or for lines that are not there, and what is not."""

import msgspec

from support.each import each
from tiller_daemon.tools import BUILT_IN
from tiller_daemon.tools.suggestions import close_names, did_you_mean, similar_lines

TOOLS = [tool.name for tool in BUILT_IN]
FILES = ["connection.py", "README.md", "main.py", "config.yaml", "user_service.py", "Dockerfile"]


@each(
    ("asked", "offered"),
    [
        ("raed", "read"),
        ("bsh", "bash"),
        ("read_file", "read"),
        ("ReadFile", "read"),
        ("file-edit", "edit"),
        ("GREP", "grep"),
    ],
)
def test_a_slip_or_a_longer_name_brings_the_tool_that_was_meant(asked, offered):
    assert close_names(asked, TOOLS) == [offered]


@each("asked", ["teleport", "str_replace", "execute_command", "l", "", "list"])
def test_a_name_that_is_like_none_brings_none(asked):
    assert close_names(asked, TOOLS) == []
    assert did_you_mean(asked, TOOLS) == ""


@each(
    ("asked", "offered"),
    [
        ("conection.py", "connection.py"),
        ("readme.txt", "README.md"),
        ("mian.py", "main.py"),
        ("config.json", "config.yaml"),
        ("service_user.py", "user_service.py"),
        ("dockerfile", "Dockerfile"),
    ],
)
def test_a_file_is_offered_for_a_slip_another_end_and_other_letter_case(asked, offered):
    assert close_names(asked, FILES) == [offered]


@each("asked", ["b.py", "setup.py", "connector.toml", "x.yaml"])
def test_files_that_share_only_their_end_are_not_offered(asked):
    assert close_names(asked, FILES) == []


def test_the_likest_comes_first_and_there_are_few():
    known = ["tests", "test", "testing", "text", "taste"]
    assert close_names("test", known)[:2] == ["test", "tests"]
    assert len(close_names("test", [f"test{number}" for number in range(9)])) == 3


def test_names_are_asked_about_in_one_sentence():
    assert did_you_mean("bild", ["build", "bold"]) == " Did you mean `bold` or `build`?"


def test_lines_with_a_slip_are_found_and_unrelated_code_is_not():
    text = "def area(width, height):\n    return width * height\n\n\ndef name(self):\n    pass\n"
    ((number, lines),) = similar_lines("    return width*heigth", text)
    assert (number, lines) == (2, ["    return width * height"])
    assert similar_lines("    self.total = sum(prices)", text) == []


@each("tool", BUILT_IN)
def test_every_tool_refuses_arguments_that_it_does_not_know(tool):
    _, definitions = msgspec.json.schema_components([tool.arguments])
    for name, schema in definitions.items():
        assert schema["additionalProperties"] is False, name
