"""Images that a text names are attached, wherever and however it names them."""

from pathlib import Path

import pytest

from support.pictures import picture
from tiller_client.chat.attaching import attachments, dropped, named_images, quoted
from tiller_client.chat.editor import Editor

SCREENSHOT = "Screenshot 2026-11-28 at 12.00\N{NARROW NO-BREAK SPACE}PM.png"


@pytest.fixture
def shot(tmp_path: Path) -> Path:
    """An image in a directory with a blank and parentheses in its name."""
    path = tmp_path / "my pics (old)" / "a b.png"
    path.parent.mkdir()
    path.write_bytes(picture())
    return path


@pytest.mark.parametrize(
    "written",
    [
        "'{}'",
        '"{}"',
        "{escaped}",
        "{url}",
        '@"{}"',
        "@'{}'",
        "@{escaped}",
        '@"my pics (old)/a b.png"',
        "@my\\ pics\\ \\(old\\)/a\\ b.png",
        '"./my pics (old)/a b.png"',
    ],
)
@pytest.mark.parametrize(
    "text", ["{}", "what is in {} ?", "what is in {}?", "compare\n{}, now", "({})"]
)
def test_an_image_is_attached_anywhere_in_a_text(
    shot: Path, tmp_path: Path, written: str, text: str
) -> None:
    escaped = str(shot).replace(" ", "\\ ").replace("(", "\\(").replace(")", "\\)")
    written = written.format(shot, escaped=escaped, url=shot.as_uri())
    images, files = attachments(text.format(written), str(tmp_path))
    assert [image.data for image in images] == [shot.read_bytes()]
    assert files == ()


@pytest.mark.parametrize(
    "text",
    [
        "don't look at my@host.png, it's old",
        "/no/such/file.png",
        f"/{'x' * 5_000}.png and @{'y' * 5_000}.png",
        "@~nobody/x.png",
        "import {a} from '@scope/name'",
        "a.png",
    ],
)
def test_other_text_attaches_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.png").write_bytes(picture())
    assert attachments(text, str(tmp_path)) == ((), ())


def test_an_image_that_does_not_exist_is_told_before_it_is_sent(tmp_path: Path) -> None:
    (found,) = named_images("what is in @nofile.png ?", str(tmp_path))
    assert (found.name, found.exists) == ("nofile.png", False)


def test_another_file_is_named_after_an_at_sign(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").touch()
    assert attachments('see @"a b.txt".', str(tmp_path)) == ((), (str(tmp_path / "a b.txt"),))


@pytest.mark.parametrize("name", ["plain.png", SCREENSHOT, "it's (1).png", 'a "b" c.png'])
@pytest.mark.parametrize("pasted", ["{}", "{} ", "'{}'", "{url}"])
def test_a_dropped_image_is_a_word_of_its_own(tmp_path: Path, name: str, pasted: str) -> None:
    path = tmp_path / name
    path.write_bytes(picture())
    pasted = pasted.format(path, url=path.as_uri())
    if pasted.startswith("'") and "'" in name:
        pasted = quoted(str(path))
    editor = Editor()
    editor.buffer.insert_text("what is in")
    editor.paste(pasted)
    editor.buffer.insert_text("?")
    images, _ = attachments(editor.buffer.text, "/")
    assert [image.data for image in images] == [path.read_bytes()]


def test_a_pasted_text_with_more_than_images_stays_as_it_is(shot: Path) -> None:
    assert dropped(f"see '{shot}'") == ""
    assert dropped("'/no/such.png'") == ""
    assert dropped(f"'{shot}' '{shot}'") == f'"{shot}" "{shot}"'
