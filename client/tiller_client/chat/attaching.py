"""Finds the files that a text names, to attach the content of images and the paths of others."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from tiller_client.command_line.prompt import read_images
from tiller_client.connecting.runtime import chosen_remote
from tiller_protocol.items import Image, QueuedInput

_NAME = re.compile(
    r"""(?<![^ \t\n(\[])(?P<mark>@?)"""
    r"""(?:(?P<quote>["'])(?P<quoted>[^\n]+?)(?P=quote)(?=[ \t\n.,;:!?)\]}]|\Z)"""
    r"""|(?P<bare>(?:\\.|[^ \t\n\\(\[])(?:\\.|[^ \t\n\\])*))"""
)
"""Matches a word or a quoted text, and an @ before it.

A no-break space is no end of a word: macOS has one in the names of screenshots.
"""

_ESCAPED = re.compile(r"\\(.)")
_SHELL = re.compile(r"""[ \t\\'"()\[\]@]""")
"""Matches what must be quoted in a path, so that `_NAME` finds the whole path."""

_AFTER = ".,;:!?)]}"
"""Punctuation that may follow a path in a sentence."""

IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")
"""Endings of the names of files that are attached with their content."""


class Named(NamedTuple):
    """A file that a text names."""

    path: str
    """The path, absolute unless the workspace is on another machine."""
    exists: bool

    @property
    def name(self) -> str:
        """The last part of the path."""
        return Path(self.path).name

    @property
    def is_image(self) -> bool:
        """Whether the file's content is attached, by its name."""
        return self.path.lower().endswith(IMAGES)


def attachments(text: str, workspace: str) -> tuple[tuple[Image, ...], tuple[str, ...]]:
    """The images and files that a text names; raises `UsageError` if an image can't be read."""
    images, files = _split(text, workspace)
    return read_images(images), tuple(files)


def named_images(text: str, workspace: str) -> list[Named]:
    """The images that a text names, for display; those that do not exist are not attached."""
    return [one for one in _named(text, workspace) if one.is_image]


def is_in_text(queued: QueuedInput, workspace: str) -> bool:
    """Whether a queued input's text names all that is attached, so that the text is enough."""
    images, files = _split(queued.text, workspace)
    return (len(images), len(files)) == (len(queued.images), len(queued.files))


def dropped(pasted: str) -> str:
    """If a pasted text is only the paths of images, as when files are dropped, return them quoted.

    Otherwise, return an empty text.
    """
    stripped = pasted.strip()
    if stripped.startswith("/") and _is_image(stripped):
        return quoted(stripped)
    words = list(_NAME.finditer(stripped))
    found = [_path(word, "/") for word in words if _is_path(word)]
    if found and len(found) == len(words) and all(map(_is_image, found)):
        return " ".join(map(quoted, found))
    return ""


def quoted(path: str) -> str:
    """Write a path so that it is found in a text."""
    if not _SHELL.search(path):
        return path
    return f'"{path}"' if '"' not in path else _SHELL.sub(r"\\\g<0>", path)


def _split(text: str, workspace: str) -> tuple[list[str], list[str]]:
    found = [one for one in _named(text, workspace) if one.exists]
    images = [one.path for one in found if one.is_image]
    return images, [one.path for one in found if not one.is_image]


def _named(text: str, workspace: str) -> list[Named]:
    """The images that a text names, and the other files that it names after an @, each once."""
    return list(dict.fromkeys(_all_named(text, workspace)))


def _all_named(text: str, workspace: str) -> Iterator[Named]:
    is_far = chosen_remote() is not None
    for match in _NAME.finditer(text):
        is_marked = bool(match["mark"])
        if is_far and is_marked:
            continue  # the workspace is on the far machine, where the model reads the files itself
        path = _path(match, workspace)
        if not _exists(path) and (shorter := path.rstrip(_AFTER)) != path:
            path = shorter
        if is_marked:
            named = Named(path, exists=_exists(path))
            if named.exists or named.is_image:
                yield named
        elif _is_path(match) and _is_image(path):
            yield Named(path, exists=True)


def _is_path(match: re.Match[str]) -> bool:
    """Whether a word without an @ looks like a path rather than like a name."""
    return _word(match).startswith(("/", "~/", "./", "../", "file://"))


def _word(match: re.Match[str]) -> str:
    return match["quoted"] or _ESCAPED.sub(r"\1", match["bare"])


def _path(match: re.Match[str], workspace: str) -> str:
    word = _word(match)
    if word.startswith("file://"):
        word = unquote(word.removeprefix("file://").removeprefix("localhost"))
    if word.startswith("~/"):
        word = str(Path(word).expanduser())
    return str(Path(workspace, word))


def _is_image(path: str) -> bool:
    return Named(path, exists=True).is_image and _exists(path)


def _exists(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - `Path.exists` raises if the name is too long
