"""Instructions in directories below the workspace, sent with the first call that uses a file there.

Instructions in the workspace and in the directories above it are in the system prompt.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tiller_daemon.files.paths import text_of
from tiller_daemon.files.whole_files import fingerprint
from tiller_daemon.tools.base import FileVersions, Requirement, ToolEnvironment
from tiller_daemon.workspace.instructions import Instructions, read_nested_instructions

INTRODUCTION = """\
The project has instructions for this directory and everything below it. There, they take \
precedence over the instructions of the directories above. The user takes precedence over all \
instructions."""


def new_instructions(requirements: Sequence[Requirement], environment: ToolEnvironment) -> str:
    """Return instructions to append to the result of a call that needed `requirements`.

    Empty if the call used no file in such a directory, or if the model has the instructions.
    Instructions that may not be read without asking the user are only mentioned. Commands get no
    instructions, as they use more files than they name. Reads a few small files.
    """
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
        return environment.files.readable(text_of(root, path))

    unsent = [
        instructions
        for directory in _directories(below, root)
        for instructions in read_nested_instructions(root, directory, may_read)
        if _note_if_unsent(instructions, environment.files.versions)
    ]
    refused = [f"\n\n({one.path} was not read: {one.problem}.)" for one in unsent if one.problem]
    readable = [
        f'<instructions file="{one.path}">\n{one.text}\n</instructions>'
        for one in unsent
        if not one.problem
    ]
    if not readable:
        return "".join(refused)
    return "".join(["\n\n", "\n".join([INTRODUCTION, *readable]), *refused])


def _is_below(subject: str) -> bool:
    """Whether a path is in a directory below the workspace; outside, paths are absolute."""
    return "/" in subject and not subject.startswith("/")


def _directories(subjects: Iterable[str], root: Path) -> list[Path]:
    """Return the directories of the files among the subjects; searched directories don't count."""
    paths = [Path(root, subject) for subject in subjects]
    return [path.parent for path in paths if path.is_file()]


def _note_if_unsent(instructions: Instructions, files: FileVersions) -> bool:
    """Note that the instructions are sent now; False if the model has them already."""
    digest = fingerprint((instructions.text or instructions.problem).encode())
    if files.instructions_sent.get(instructions.path) == digest:
        return False
    files.instructions_sent[instructions.path] = digest
    return True
