"""Instructions of directories below the workspace, told with the first call that uses a file there.

Those of the workspace itself, and above it, are in the system prompt.
"""

from collections.abc import Iterable
from pathlib import Path

from tiller_daemon.tools.base import FileVersions, Need
from tiller_daemon.workspace.files import fingerprint
from tiller_daemon.workspace.instructions import Instructions, read_nested_instructions

INTRODUCTION = """\
The project has instructions for this directory and what is below it. There they count more than \
those of the directories above; what the user says counts more than any of them."""


def tell_instructions(needs: Iterable[Need], workspace: Path, files: FileVersions) -> str:
    """Return what the model is to be told beside the result of a call that needed `needs`.

    Empty when the call used no file in such a directory, or when the model was told already. Reads
    a few small files.
    """
    below = [s for need in needs if need.kind == "path" for s in need.subjects if _is_below(s)]
    if not below:
        return ""
    root = workspace.resolve()
    news = [
        one
        for directory in _directories(below, root)
        for one in read_nested_instructions(root, directory)
        if _is_news(one, files)
    ]
    if not news:
        return ""
    told = [f'<instructions file="{path}">\n{text}\n</instructions>' for path, text in news]
    return "\n\n" + "\n".join([INTRODUCTION, *told])


def _is_below(subject: str) -> bool:
    """Whether this is in a directory below the workspace: outside of it paths are absolute."""
    return "/" in subject and not subject.startswith("/")


def _directories(subjects: Iterable[str], root: Path) -> list[Path]:
    """Where the files are that were used; a directory that was only looked through is none."""
    paths = [Path(root, subject) for subject in subjects]
    return [path.parent for path in paths if path.is_file()]


def _is_news(instructions: Instructions, files: FileVersions) -> bool:
    mark = fingerprint(instructions.text.encode())
    if files.told.get(instructions.path) == mark:
        return False
    files.told[instructions.path] = mark
    return True
