"""Values on the command line, and the current directory: empty, not UTF-8, or a pipe."""

import os
from pathlib import Path

import pytest

from support.event_bodies import Tiller
from support.fake_daemon import FakeDaemon
from tiller_client.command_line.arguments import parse
from tiller_client.command_line.prompt import read_images
from tiller_protocol.ops import SessionCreate
from tiller_protocol.places import Places

BAD = os.fsdecode(b"\xff\xfebad")
SHOWN = r"\xff\xfebad"
OF_DIRECTORY = (
    *("exec hi", "new", "show", "diff", "attach", "trust", "commands", "agents", "search x"),
    "exec -C .. --file a.txt hi",
)
"""Command lines that send the path of the current directory."""


@pytest.fixture
def bad_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / BAD
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


@pytest.mark.parametrize("line", OF_DIRECTORY)
def test_a_directory_whose_name_is_not_utf8_is_misuse(
    places: Places, tiller: Tiller, bad_directory: Path, line: str
) -> None:
    assert bad_directory
    with FakeDaemon(places.runtime) as daemon:
        status, out, err = tiller(*line.split())
    assert (status, out) == (2, "")
    assert f"{SHOWN}" in err
    assert "is not valid UTF-8, but tiller's protocol transfers all text as UTF-8" in err
    assert not any(isinstance(op, SessionCreate) for op in daemon.seen.values())


def test_in_such_a_directory_all_else_works(
    places: Places, tiller: Tiller, bad_directory: Path, tmp_path: Path
) -> None:
    assert bad_directory
    with FakeDaemon(places.runtime):
        assert tiller("ls")[0] == 0
        assert tiller("new", "-C", str(tmp_path))[0] == 0


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("exec -m BAD hi", "-m/--model"),
        ("exec --agent BAD hi", "--agent"),
        ("exec --tools BAD hi", "--tools"),
        ("exec BAD", "PROMPT"),
        ("set last title BAD", "VALUE"),
        ("search BAD", "WORD"),
        ("shell last BAD", "COMMAND"),
        ("mcp login BAD", "NAME"),
        ("interrupt --background BAD last", "--background"),
        ("send last BAD", "TEXT"),
        ("queue last --edit 1234 BAD", "--edit"),
    ],
)
def test_a_value_that_is_not_utf8_is_misuse_and_named(tiller: Tiller, line: str, name: str) -> None:
    status, out, err = tiller(*line.replace("BAD", BAD).split())
    assert (status, out) == (2, "")
    assert f"the value of {name}, {SHOWN}, is not valid UTF-8" in err


def test_a_file_whose_name_is_not_utf8_can_not_be_mentioned(tiller: Tiller, tmp_path: Path) -> None:
    (tmp_path / BAD).touch()
    status, out, err = tiller("exec", "--file", str(tmp_path / BAD), "hi")
    assert (status, out) == (2, "")
    assert f"the path {tmp_path}/{SHOWN} is not valid UTF-8" in err


def test_words_for_another_program_may_be_any_bytes_or_empty() -> None:
    assert parse(["sandbox", "--", "cat", BAD, ""]).command == ["cat", BAD, ""]
    assert parse(["daemon", "run", "--config", BAD]).config == BAD


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("exec --session= hi", "--session"),
        ("exec --output-schema= hi", "--output-schema"),
        ("exec --image= hi", "--image"),
        ("exec --file= hi", "--file"),
        ("exec --model= hi", "-m/--model"),
        ("exec --agent= hi", "--agent"),
        ("exec --budget= hi", "--budget"),
        ("exec --tools= hi", "--tools"),
        ("exec --timeout= hi", "--timeout"),
        ("ls --of=", "--of"),
        ("rpc --name=", "--name"),
    ],
)
def test_an_empty_value_is_misuse_and_not_the_default(tiller: Tiller, line: str, name: str) -> None:
    """It comes from a shell variable that is not set."""
    status, out, err = tiller(*line.split())
    assert (status, out) == (2, "")
    assert f"the value of {name} is empty; if it comes from a shell variable" in err


@pytest.mark.parametrize("words", [("exec", "-C", "", "hi"), ("requests", ""), ("chat", "")])
def test_an_empty_word_is_misuse_too(tiller: Tiller, words: tuple[str, ...]) -> None:
    status, out, err = tiller(*words)
    assert (status, out) == (2, "")
    assert "is empty; if it comes from a shell variable" in err


def test_an_empty_value_resets_a_setting() -> None:
    assert parse(["set", "last", "title", ""]).value == ""


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (("daemon", "start", "-x"), "tiller daemon start"),
        (("daemon", "run", "-x"), "tiller daemon run"),
        (("ls", "-x"), "tiller ls"),
    ],
)
def test_a_hint_names_a_command_line_that_exists(
    tiller: Tiller, words: tuple[str, ...], program: str
) -> None:
    status, _, err = tiller(*words)
    assert status == 2
    assert f"see: {program} --help" in err
    assert tiller(*program.split()[1:], "--help")[0] == 0


@pytest.mark.parametrize("option", ["--image", "--output-schema"])
def test_a_pipe_that_nobody_writes_to_is_misuse(
    tiller: Tiller, tmp_path: Path, option: str
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    status, out, err = tiller("exec", option, str(pipe), "hi")
    assert (status, out) == (2, "")
    assert f"{pipe} is a pipe from which nothing comes" in err


def test_what_another_program_prints_can_be_an_image() -> None:
    """As with `--image <(program)` in a shell."""
    reader, writer = os.pipe()
    os.write(writer, b"picture")
    os.close(writer)
    (image,) = read_images([f"/dev/fd/{reader}"])
    os.close(reader)
    assert image.data == b"picture"
