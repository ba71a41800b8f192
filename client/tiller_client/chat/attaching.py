"""Finds the files that a text mentions, to attach the content of images and the paths of others."""

import re
from pathlib import Path

from tiller_client.command_line.prompt import read_images
from tiller_client.connecting.runtime import chosen_remote
from tiller_protocol.items import Image

_MENTION = re.compile(r"(?<!\S)@(\S+)")
"""Matches a path after an @ at the beginning of a word."""

IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")
"""Endings of the names of files that are attached with their content."""


def attachments(text: str, workspace: str) -> tuple[tuple[Image, ...], tuple[str, ...]]:
    """The images and files that a text mentions; raises `UsageError` if an image can't be read.

    A mention of a file that does not exist is ignored.
    """
    if chosen_remote():
        return (), ()  # the workspace is on the far machine, where the model reads the files itself
    images: list[str] = []
    files: list[str] = []
    for name in dict.fromkeys(_MENTION.findall(text)):
        path = Path(workspace, Path(name).expanduser())
        if path.is_file() and path.suffix.lower() in IMAGES:
            images.append(str(path))
        elif path.exists():
            files.append(str(path))
    dropped = text.strip().strip("'\"").replace("\\ ", " ")
    if dropped.startswith("/") and dropped.lower().endswith(IMAGES) and Path(dropped).is_file():
        images.append(dropped)  # a file that was dragged into the terminal
    return read_images(images), tuple(files)
