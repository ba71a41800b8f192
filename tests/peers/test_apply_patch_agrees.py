"""`apply_patch` does what codex does: the same patches are taken, and leave the same trees.

Where it differs it does so on purpose, and no patch made here comes to that, except the first:

- A patch that fails in its middle changes nothing; codex leaves what it did before.
- A missing last line end stays missing; codex adds one.
- Added lines end like the lines around them, modes go with files that move, and files that the
  model has not read are left alone.
- `@@` lines below each other narrow further, a move needs no change, and one to the same name
  leaves the file there, which codex deletes.
"""

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.tool_calls import call
from tiller_daemon.files.whole_files import fingerprint
from tiller_daemon.tools.base import FileVersions, ToolFailure
from tiller_daemon.tools.editing.apply_patch import APPLY_PATCH

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

NAMES = ("a", "b", "d/c")
LINES = ("x", "y", "z", "", " x", "x ", "\ty", "é", "“z”", "@@", "+", "-x", "*** x", "def f():")
RUNS = 200

TWICE_AT_THE_END = "*** Begin Patch\n*** Update File: a\n@@\n+1\n@@\n x\n+2\n*** End Patch\n"

line = st.sampled_from(LINES)
content = st.lists(line, max_size=8).map(lambda lines: "".join(f"{one}\n" for one in lines))


class Case(NamedTuple):
    files: dict[str, str]
    patch: str


@st.composite
def hunk(draw, text: str) -> str:
    """A change that is right most of the time: some lines of the text, of which some are new."""
    lines = text.split("\n")[:-1]
    start = draw(st.integers(0, len(lines)))
    end = draw(st.integers(start, min(len(lines), start + 4)))
    context = draw(st.sampled_from(["@@"] * 4 + [f"@@ {one}" for one in lines[:start]]))
    told = [context]
    for one in lines[start:end]:
        shape = draw(st.sampled_from(["keep", "keep", "drop", "change", "add", "wrong", "blanks"]))
        match shape:
            case "keep":
                told.append(f" {one}")
            case "drop":
                told.append(f"-{one}")
            case "change":
                told += [f"-{one}", f"+{draw(line)}"]
            case "add":
                told += [f"+{draw(line)}", f" {one}"]
            case "wrong":
                told.append(draw(st.sampled_from([f" {draw(line)}", one, "@@", ""])))
            case "blanks":
                told += [f"-{one.strip()} ", f"+{draw(line)}"]
    if len(told) == 1 or draw(st.booleans()):
        told.append(f"+{draw(line)}")
    if end == len(lines) and draw(st.booleans()):
        told.append("*** End of File")
    return "".join(f"{one}\n" for one in told)


@st.composite
def case(draw) -> Case:
    files = draw(st.dictionaries(st.sampled_from(NAMES), content, min_size=1))
    parts: list[str] = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)):
        kind = draw(st.sampled_from(["update"] * 6 + ["add", "delete", "move"]))
        text = files.get(name, "x\ny\n")
        match kind:
            case "add":
                added = "".join(f"+{one}\n" for one in draw(content).split("\n")[:-1])
                parts.append(f"*** Add File: {name}\n{added}")
            case "delete":
                parts.append(f"*** Delete File: {name}\n")
            case "update":
                hunks = "".join(draw(st.lists(hunk(text), min_size=1, max_size=3)))
                parts.append(f"*** Update File: {name}\n{hunks}")
            case "move":
                target = draw(st.sampled_from([one for one in (*NAMES, "e/f") if one != name]))
                parts.append(f"*** Update File: {name}\n*** Move to: {target}\n{draw(hunk(text))}")
    body = "".join(parts)
    # Each `@@` is followed by a line of the change: below each other we differ.
    body = re.sub(r"^(@@( .*)?\n)(?=@@)", r"\1+x\n", body, flags=re.MULTILINE)
    if draw(st.integers(0, 9)) == 0:
        lines = body.split("\n")
        number = draw(st.integers(0, len(lines) - 1))
        if not "".join(lines[number - 1 : number + 2 : 2]).startswith("@@@@"):
            del lines[number]
        body = "\n".join(lines)
    return Case(files, f"*** Begin Patch\n{body}*** End Patch\n")


def put(files: dict[str, str], directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name, text in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(text.encode())
    return directory


def tree(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes().decode() for path in files}


def apply(patch: str, directory: Path) -> bool:
    """Apply a patch as the tool does to files that were read; whether it was taken."""
    seen = {path: fingerprint(path.read_bytes()) for path in directory.rglob("*") if path.is_file()}
    try:
        call(APPLY_PATCH, {"patch": patch}, directory, FileVersions(seen))
    except ToolFailure:
        return False
    return True


def test_random_patches_leave_the_trees_that_codex_leaves(codex_apply_patch, tmp_path):
    taken = refused = 0

    @settings(
        max_examples=RUNS, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    @given(case())
    @example(Case({"a": "x\n"}, TWICE_AT_THE_END))
    def agree(one: Case) -> None:
        nonlocal taken, refused
        theirs, ours = put(one.files, tmp_path / "theirs"), put(one.files, tmp_path / "ours")
        status, said = codex_apply_patch(one.patch, theirs)
        was_taken = apply(one.patch, ours)
        assert was_taken == (status == 0), f"codex: {said}"
        assert tree(ours) == (tree(theirs) if was_taken else one.files)
        taken, refused = taken + was_taken, refused + (not was_taken)

    agree()
    assert min(taken, refused) > RUNS / 8


@pytest.mark.parametrize(
    ("files", "body", "ours", "theirs"),
    [
        ({"a": "x\ny"}, "*** Update File: a\n@@\n-x\n+1\n", {"a": "1\ny"}, {"a": "1\ny\n"}),
        (
            {"a": "x\n", "b": "y\n"},
            "*** Update File: a\n@@\n-x\n+1\n*** Delete File: c\n",
            {"a": "x\n", "b": "y\n"},
            {"a": "1\n", "b": "y\n"},
        ),
        ({"a": "x\n"}, "*** Update File: a\n*** Move to: b\n", {"b": "x\n"}, {"a": "x\n"}),
        ({"a": "x\n"}, "*** Update File: a\n*** Move to: a\n@@\n-x\n+1\n", {"a": "1\n"}, {}),
        (
            {"a": "x\ny\nx\n"},
            "*** Update File: a\n@@ x\n@@ y\n-x\n+1\n",
            {"a": "x\ny\n1\n"},
            {"a": "x\ny\nx\n"},
        ),
    ],
)
def test_where_we_differ_from_codex_we_mean_to(
    codex_apply_patch, tmp_path, files, body, ours, theirs
):
    patch = f"*** Begin Patch\n{body}*** End Patch\n"
    codex_apply_patch(patch, put(files, tmp_path / "theirs"))
    apply(patch, put(files, tmp_path / "ours"))
    assert tree(tmp_path / "theirs") == theirs
    assert tree(tmp_path / "ours") == ours
