"""Reads text and files that the command line names, and checks them before anything is sent."""

import os
import re
import stat
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from tiller_client.command_line.values import NEEDS_UTF8, as_utf8, shown_bytes
from tiller_client.connecting.runtime import chosen_remote, stdin_is_piped
from tiller_client.errors import UsageError
from tiller_protocol.codec import INPUT_BYTES_MAX
from tiller_protocol.items import Image
from tiller_protocol.worktrees import BRANCH_CHARS_MAX, WorktreeChoice

FROM_STDIN = "-"

NAMING_CHARS_MAX, NAMING_WORDS_MAX, NAMING_BYTES = 32, 4, 2
"""How much of a task names its worktree, and how many random bytes do."""


def read_prompt(argument: str | None, worktree: str = "") -> tuple[str, str]:
    """Return the prompt and its context; either may come from stdin. Raises `UsageError`.

    `worktree` is the name after `--worktree`, which may have been meant as the prompt.
    """
    if argument is None:
        if not stdin_is_piped():
            hint = f" ({worktree!r} is the name of the worktree)" if worktree else ""
            raise UsageError(f"there is no task{hint}; give PROMPT, or pipe the task into stdin")
        argument = FROM_STDIN
    if argument == FROM_STDIN or not stdin_is_piped():
        return read_text(argument), ""
    from tiller_client.command_line.piped import read_context  # most prompts have none

    # The prompt comes first: if it is bad, there is no need to wait for stdin.
    return read_text(argument), read_context()


def read_text(argument: str) -> str:
    """Return `argument`, or the content of stdin if it is `-`.

    Raises `UsageError` if the text is empty, longer than `INPUT_BYTES_MAX` or not UTF-8.
    """
    if argument == FROM_STDIN:
        data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    else:
        data = argument.encode()
    if len(data) > INPUT_BYTES_MAX:
        raise UsageError(
            f"the text is longer than {INPUT_BYTES_MAX // 1024 // 1024} MiB; put it into a file "
            "in the workspace and give the file's name"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the text is not UTF-8: byte {error.start + 1} is invalid") from None
    if not text.strip():
        raise UsageError("the text is empty; give the text for the model")
    return text


def read_images(arguments: Sequence[str]) -> tuple[Image, ...]:
    """Read image files, without checking their content; raises `UsageError`."""
    images = tuple(_read_image(argument) for argument in arguments)
    if sum(len(image.data) for image in images) > INPUT_BYTES_MAX:
        raise UsageError(
            f"together, the images are larger than {INPUT_BYTES_MAX // 1024 // 1024} MiB; "
            "name each image with --file PATH, and the model will read it"
        )
    return images


def name_files(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return absolute paths of files; relative paths start at the current directory.

    With `--host`, they start at the user's home on the other machine.
    """
    if remote := chosen_remote():
        return tuple(_to_send(remote.path(argument)) for argument in arguments)
    return tuple(_to_send(os.path.abspath(argument)) for argument in arguments)  # noqa: PTH100 - no link is followed


def read_workspace(argument: str, advice: str = "name the workspace with -C DIR") -> str:
    """Return the absolute path of an existing directory; raises `UsageError`.

    With `--host`, a relative path starts at the user's home on the other machine, and the daemon
    checks that the directory exists.
    """
    if remote := chosen_remote():
        return _to_send(remote.path(argument))
    path = Path(argument)
    if not path.is_dir():
        raise UsageError(f"{argument} is not a directory; {advice}")
    try:
        return _to_send(str(path.resolve()))
    except FileNotFoundError:
        raise UsageError(
            f"the current directory no longer exists; change to another one, or {advice}"
        ) from None


def read_schema(argument: str) -> dict[str, Any]:
    """Return the JSON Schema in a file; raises `UsageError` unless it is a JSON object."""
    import json

    data = _read_file(argument)
    try:
        schema: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{argument} is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise UsageError(f"{argument} is not a JSON Schema: a schema must be a JSON object")
    return cast("dict[str, Any]", schema)


def _to_send(path: str) -> str:
    """Return a path as text for the protocol; raises `UsageError` if its bytes are not UTF-8."""
    try:
        return as_utf8(path)
    except UnicodeDecodeError:
        raise UsageError(
            f"the path {shown_bytes(path)} {NEEDS_UTF8}; rename it, or use another path"
        ) from None


def _read_image(argument: str) -> Image:
    import mimetypes

    data = _read_file(argument, INPUT_BYTES_MAX + 1)
    return Image(mimetypes.guess_type(argument)[0] or "application/octet-stream", data)


def _read_file(argument: str, bytes_max: int = -1) -> bytes:
    """Read a file, or its first `bytes_max` bytes; raises `UsageError`.

    A pipe may come from another program, as in `--image <(program)`. If nobody writes to it, this
    does not wait.
    """
    try:
        with open(argument, "rb", opener=_open_at_once) as file:
            os.set_blocking(file.fileno(), True)
            data = file.read(bytes_max)
            is_pipe = stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise UsageError(f"{argument} can't be read: {error.strerror}") from None
    if is_pipe and not data:
        raise UsageError(f"{argument} is a pipe from which nothing comes; name a file instead")
    return data


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; otherwise, opening a pipe would wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_worktree(arguments: Namespace) -> WorktreeChoice | None:
    """Return the worktree for a new session; raises `UsageError`.

    No branch's name has spaces, so text after `--worktree` that has some is the prompt.
    """
    if arguments.worktree is None:
        if arguments.base:
            raise UsageError("--base says what a new worktree begins with; add --worktree")
        return None
    if len(arguments.worktree.split()) > 1 and not getattr(arguments, "prompt", "given"):
        arguments.prompt, arguments.worktree = arguments.worktree, ""
    if len(max(arguments.worktree, arguments.base or "", key=len)) > BRANCH_CHARS_MAX:
        raise UsageError(f"a branch's name has at most {BRANCH_CHARS_MAX} characters")
    name = arguments.worktree or worktree_name(getattr(arguments, "prompt", "") or "")
    return WorktreeChoice(name, arguments.base or "")


def worktree_name(task: str) -> str:
    """Return a new name for a worktree, from the first words of a task; empty if it has none.

    The digits at its end keep it from being the name of an existing worktree.
    """
    words = re.findall(r"[a-z0-9]+", task[:NAMING_CHARS_MAX].lower())[:NAMING_WORDS_MAX]
    return "-".join([*words, os.urandom(NAMING_BYTES).hex()]) if words else ""
