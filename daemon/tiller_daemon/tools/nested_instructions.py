"""Instructions of directories below the workspace, told with the first call that uses a file there.

Those of the workspace itself, and above it, are in the system prompt.
"""

from collections.abc import Iterable
from pathlib import Path

from tiller_daemon.files.paths import text_of
from tiller_daemon.files.whole_files import fingerprint
from tiller_daemon.tools.base import FileVersions, Requirement, ToolEnvironment
from tiller_daemon.workspace.instructions import Instructions, read_nested_instructions

INTRODUCTION = """\
The project has instructions for this directory and what is below it. There they count more than \
those of the directories above; what the user says counts more than any of them."""


def new_instructions(requirements: Iterable[Requirement], environment: ToolEnvironment) -> str:
    """Return what the model is to be told beside the result of a call that needed `requirements`.

    Empty when the call used no file in such a directory, or when the model was told already. Of
    instructions that may not be read unasked it is told that they are there. A command tells
    nothing: the files that it names are only part of what it uses. Reads a few small files.
    """
    requirements = tuple(requirements)
    if any(requirement.kind == "command" for requirement in requirements):
        return ""
    below = [
        s
        for requirement in requirements
        if requirement.kind == "path"
        for s in requirement.subjects
        if _is_below(s)
    ]
    if not below:
        return ""
    root = environment.workspace.resolve()

    def may_read(path: Path) -> bool:
        return environment.readable(text_of(root, path))

    news = [
        one
        for directory in _directories(below, root)
        for one in read_nested_instructions(root, directory, may_read)
        if _is_news(one, environment.files)
    ]
    refused = [f"\n\n({one.path} was not read: {one.problem}.)" for one in news if one.problem]
    readable = [
        f'<instructions file="{one.path}">\n{one.text}\n</instructions>'
        for one in news
        if not one.problem
    ]
    if not readable:
        return "".join(refused)
    return "".join(["\n\n", "\n".join([INTRODUCTION, *readable]), *refused])


def _is_below(subject: str) -> bool:
    """Whether this is in a directory below the workspace: outside of it paths are absolute."""
    return "/" in subject and not subject.startswith("/")


def _directories(subjects: Iterable[str], root: Path) -> list[Path]:
    """Where the files are that were used; a directory that was only looked through is none."""
    paths = [Path(root, subject) for subject in subjects]
    return [path.parent for path in paths if path.is_file()]


def _is_news(instructions: Instructions, files: FileVersions) -> bool:
    mark = fingerprint((instructions.text or instructions.problem).encode())
    if files.instructions_sent.get(instructions.path) == mark:
        return False
    files.instructions_sent[instructions.path] = mark
    return True
