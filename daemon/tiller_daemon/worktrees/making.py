"""Makes a worktree: a repository that borrows from another one, with all files of a commit.

It is made in a directory beside its final place and then renamed, so that nobody ever sees half a
worktree. After a crash, `recover` finishes or undoes what was begun.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import trio
from msgspec import Struct, structs

from tiller_daemon.files.paths import Location, PathProblem
from tiller_daemon.files.pinned_directory import pinned_directory
from tiller_daemon.worktrees.git import (
    GitFailed,
    WorktreeProblem,
    branches_in_use,
    clashing_branch,
    git,
    succeeds,
)
from tiller_daemon.worktrees.records import Origin, Record, Records, exists, real

COPY_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest file that is copied into a worktree."""

DEPTH_MAX: Final = 8
"""How deep submodules may be nested."""

NO_COMMIT: Final = "0" * 40

KEPT: Final = "refs/tiller/worktrees"
"""Where the refs are that keep the commits of worktrees in the original repository."""

_REFS: Final = ("refs/remotes", "refs/tags")


class Source(NamedTuple):
    """The repository and the checkout from which a worktree is made."""

    repository: Path
    """The git directory with refs and objects (git's "common directory")."""
    own: Path
    """The git directory of the checkout."""
    checkout: Path
    """The top of the checkout."""
    subdirectory: str
    """The workspace's path in the checkout; `.` at the top."""


class Wanted(Struct, frozen=True):
    """What worktree to make."""

    name: str
    """The name of the worktree and its branch."""
    base: str = ""
    """The branch or commit to begin with; empty for what is checked out."""
    parent: str = ""
    """The directory for worktrees; empty for the usual place beside the checkout."""
    copy: tuple[str, ...] = ()
    """Files to copy from the checkout, such as `.env`."""


async def find_source(workspace: Path) -> Source:
    """Return the repository around a workspace (absolute, without links)."""
    try:
        answer = await git(
            workspace,
            *("rev-parse", "--path-format=absolute", "--is-bare-repository", "--git-common-dir"),
            *("--absolute-git-dir", "--show-toplevel"),
        )
    except GitFailed as problem:
        if "not a git repository" in str(problem) or "must be run in a work tree" in str(problem):
            why = (
                f"{workspace} is in no work tree of git, so there is nothing to make a worktree of."
            )
            raise WorktreeProblem(
                f"{why} Begin with: git init && git add . && git commit"
            ) from None
        raise
    repository, own, checkout = (real(line) for line in answer.split("\n")[1:4])
    return Source(repository, own, checkout, str(workspace.relative_to(checkout)))


async def plan(source: Source, wanted: Wanted, record_id: str, head: str = "") -> Record:
    """Check what is wanted, and return the record of the worktree to make.

    `head` is the commit to begin with if no base is wanted; the default is what is checked out.
    Raises `WorktreeProblem`.
    """
    name, repository = wanted.name, source.repository
    if not await succeeds(repository, "check-ref-format", "--branch", name):
        raise WorktreeProblem(f"`{name}` can't be the name of a branch; git forbids it.")
    base = await _commit(source.checkout, wanted.base or head or "HEAD")
    branch = await git(source.checkout, "branch", "--show-current")
    if wanted.base and await succeeds(repository, "show-ref", "-q", f"refs/heads/{wanted.base}"):
        branch = wanted.base
    is_new = not await succeeds(repository, "show-ref", "-q", "--verify", f"refs/heads/{name}")
    if not is_new:
        if place := (await branches_in_use(repository)).get(name):
            raise WorktreeProblem(
                f"The branch `{name}` is checked out in {place}. Choose another name."
            )
        if wanted.base:
            raise WorktreeProblem(
                f"The branch `{name}` exists already. Leave out the base, or choose another name."
            )
        base = await _commit(repository, f"refs/heads/{name}")
    elif clash := await clashing_branch(repository, name):
        raise WorktreeProblem(
            f"git can't have a branch `{name}` beside the branch `{clash}`. Choose another name."
        )
    path = await _place(source, wanted)
    if exists(path):
        raise WorktreeProblem(f"{path} exists already. Choose another name, or remove it.")
    origin = Origin(
        str(repository),
        str(source.checkout),
        base,
        base_branch="" if branch == name else branch,
        is_new=is_new,
        borrowed=await _borrowed(repository),
    )
    return Record(record_id, name, str(path), origin, published=base)


async def make(records: Records, record: Record, source: Source, wanted: Wanted) -> Record:
    """Make a worktree as planned; undo everything if that fails."""
    draft = draft_of(record)
    records.put(record)
    try:
        await trio.to_thread.run_sync(_make_parent, draft)
        await _borrow(source, draft, record.origin.base, record.name, DEPTH_MAX)
        await _take_refs(source, draft, record)
        copied = await trio.to_thread.run_sync(_copy, source.checkout, draft, wanted.copy)
        record = structs.replace(record, origin=structs.replace(record.origin, copied=copied))
        records.put(record)
        os.rename(draft, record.path)  # noqa: PTH104 - fails if there is something
        return await _finish_or_take_back(records, record, draft)
    except OSError as error:
        await undo(records, record)
        raise WorktreeProblem(f"{record.path} can't be made: {error.strerror}.") from error
    except BaseException:
        with trio.CancelScope(shield=True):
            await undo(records, record)
        raise


async def _finish_or_take_back(records: Records, record: Record, draft: Path) -> Record:
    """Finish a worktree that nobody knows yet; if git refuses, leave nothing at its place."""
    try:
        return await finish(records, record)
    except WorktreeProblem:
        os.rename(record.path, draft)  # noqa: PTH104
        raise


async def finish(records: Records, record: Record) -> Record:
    """Make the refs of a complete worktree; repeating this does no harm."""
    wanted = [(f"{KEPT}/{record.id}/base", record.origin.base)]
    if record.origin.is_new:
        wanted.insert(0, (f"refs/heads/{record.name}", record.origin.base))
    for ref, commit in wanted:
        if not await succeeds(record.origin.repository, "show-ref", "-q", "--verify", ref):
            await git(record.origin.repository, "update-ref", ref, commit, NO_COMMIT)
    ready = structs.replace(record, state="ready")
    records.put(ready)
    return ready


async def recover(records: Records, record: Record) -> None:
    """Finish or undo a worktree that was being made when the daemon died."""
    if exists(record.path):
        await finish(records, record)
    else:
        await undo(records, record)


async def undo(records: Records, record: Record) -> None:
    """Remove what was made of a worktree that did not get its final name."""
    draft = draft_of(record)
    await trio.to_thread.run_sync(lambda: shutil.rmtree(draft, ignore_errors=True))
    if exists(record.path):
        return  # it was renamed, and only the refs are missing
    with suppress(OSError):
        draft.parent.rmdir()
    records.drop(record)


def draft_of(record: Record) -> Path:
    """Return where a worktree is made."""
    return Path(record.path).parent / f".{record.id}.new"


async def _commit(directory: Path, text: str) -> str:
    try:
        return await git(
            directory, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}"
        )
    except GitFailed:
        if text == "HEAD":
            why = f"The repository in {directory} has no commit yet, so a worktree would be empty."
            raise WorktreeProblem(f"{why} Make a first commit.") from None
        raise WorktreeProblem(f"There is no branch or commit `{text}` in {directory}.") from None


async def _place(source: Source, wanted: Wanted) -> Path:
    folder = wanted.name.replace("/", "-")
    around = await git(source.checkout, "rev-parse", "--show-superproject-working-tree")
    if wanted.parent:
        return real(wanted.parent) / _project(source) / folder
    if around:
        raise WorktreeProblem(
            f"{source.checkout} is a submodule of {around}. Make a worktree of that repository, or "
            "name a directory for worktrees: `worktree.directory` in the configuration."
        )
    main = source.repository.parent if source.repository.name == ".git" else source.checkout
    return main.with_name(f"{main.name}.worktrees") / folder


def _project(source: Source) -> str:
    is_usual = source.repository.name == ".git"
    return (source.repository.parent if is_usual else source.repository).name.removesuffix(".git")


async def _borrowed(repository: Path) -> tuple[str, ...]:
    counted = (await git(repository, "count-objects", "-v")).splitlines()
    others = [line.partition(": ")[2] for line in counted if line.startswith("alternate: ")]
    named = ("objects", "config", "hooks", "lfs", "modules")
    return (*(str(repository / name) for name in named), *others)


async def _borrow(source: Source, place: Path, commit: str, branch: str, depth: int) -> None:
    """Make a repository with the files of a commit, which borrows all objects."""
    common = source.repository
    kind = await git(common, "rev-parse", "--show-object-format")
    first = ("-b", branch) if branch else ()
    await git("/", "init", "-q", "--template=", f"--object-format={kind}", *first, str(place))
    own = place / ".git"
    (own / "info").mkdir(exist_ok=True)
    (own / "objects/info").mkdir(exist_ok=True)
    (own / "objects/info/alternates").write_text(f"{common / 'objects'}\n")
    await _configure(source, own, kind)
    for name, place_of in (("info/exclude", common), ("shallow", common)):
        with suppress(FileNotFoundError):
            (own / name).write_bytes((place_of / name).read_bytes())
    if branch:
        await git(place, "update-ref", f"refs/heads/{branch}", commit)
        await git(place, "reset", "-q", "--hard")
    else:
        await git(place, "checkout", "-q", "--detach", commit)
    if depth:
        await _borrow_submodules(source, place, depth - 1)


async def _configure(source: Source, own: Path, kind: str) -> None:
    """Write the configuration: that of the original repository, except for what is about places."""
    common = source.repository
    promisor = await _setting(source.checkout, "extensions.partialClone")
    version = 1 if promisor or kind != "sha1" else 0
    lines = [
        "[core]",
        f"\trepositoryformatversion = {version}",
        "\tfilemode = true",
        "\tlogallrefupdates = true",
        f"\thooksPath = {_quoted(common / 'hooks')}",
        *(("[extensions]",) if version else ()),
        *((f"\tobjectFormat = {kind}",) if kind != "sha1" else ()),
        *((f"\tpartialClone = {_quoted(promisor)}",) if promisor else ()),
        *(("[lfs]", f"\tstorage = {_quoted(common / 'lfs')}") if (common / "lfs").is_dir() else ()),
        "[include]",
        f"\tpath = {_quoted(common / 'config')}",
        "[core]",
        "\tbare = false",
        "\tworktree = ..",
    ]
    if await _setting(source.checkout, "core.sparseCheckout") == "true":
        cone = await _setting(source.checkout, "core.sparseCheckoutCone") or "false"
        lines += ["\tsparseCheckout = true", f"\tsparseCheckoutCone = {cone}"]
        with suppress(FileNotFoundError):
            chosen = (source.own / "info/sparse-checkout").read_bytes()
            (own / "info/sparse-checkout").write_bytes(chosen)
    (own / "config").write_text("\n".join(lines) + "\n")


def _quoted(value: object) -> str:
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


async def _setting(directory: Path, name: str) -> str:
    try:
        return await git(directory, "config", "--get", name)
    except GitFailed:
        return ""


async def _borrow_submodules(source: Source, place: Path, depth: int) -> None:
    """Fill the submodules that are filled in the checkout; the others stay empty."""
    entries = (await git(place, "ls-files", "--stage", "-z")).split("\0")
    for entry in entries:
        if not entry.startswith("160000 "):
            continue
        commit, path = entry.split(" ")[1], entry.partition("\t")[2]
        theirs = source.checkout / path
        if not exists(theirs / ".git"):
            continue
        inner = await find_source(theirs)
        # A commit can name any path, and a `.git` there any repository.
        own = any(map(inner.repository.is_relative_to, (source.repository, theirs)))
        if own and await succeeds(theirs, "cat-file", "-e", f"{commit}^{{commit}}"):
            await _borrow(inner, place / path, commit, "", depth)


async def _take_refs(source: Source, draft: Path, record: Record) -> None:
    """Give a worktree the refs whose commits it has anyway; others may be pruned one day."""
    listed = await git(
        source.repository,
        *(
            "for-each-ref",
            f"--merged={record.origin.base}",
            "--format=create %(refname) %(objectname)",
        ),
        *_REFS,
    )
    created = [line for line in listed.splitlines() if line]
    if record.origin.base_branch:
        created.append(f"create refs/heads/{record.origin.base_branch} {record.origin.base}")
    if created:
        await git(draft, "update-ref", "--stdin", stdin=("\n".join(created) + "\n").encode())
        await git(draft, "pack-refs", "--all")


def _make_parent(draft: Path) -> None:
    draft.parent.mkdir(parents=True, exist_ok=True)


def _copy(checkout: Path, draft: Path, names: Sequence[str]) -> dict[str, str]:
    """Copy plain files that git does not have; return their digests. Links are not followed."""
    copied: dict[str, str] = {}
    for name in names:
        target = draft / name
        content = read_plain(checkout, name)
        if content is None or exists(target):
            continue
        data, mode = content
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.realpath(target.parent) != str(target.parent):
            continue
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        copied[name] = hashlib.sha256(data).hexdigest()
    return copied


def read_plain(top: Path, name: str) -> tuple[bytes, int] | None:
    """Return content and mode of a plain file below `top`.

    None if there is none, if a link leads to it, or if it is larger than `COPY_BYTES_MAX`.
    """
    try:
        with (
            pinned_directory(Location(top, True, str(top))) as beneath,  # noqa: FBT003
            os.fdopen(beneath.open_regular(os.fsencode(name)), "rb") as file,
        ):
            state = os.fstat(file.fileno())
            if state.st_size > COPY_BYTES_MAX:
                return None
            return file.read(COPY_BYTES_MAX), stat.S_IMODE(state.st_mode)
    except (OSError, PathProblem):
        return None
