"""Rules that the answer `always_here` keeps: they apply to one workspace, in all its sessions.

They are in the daemon's own file beside the user's `config.toml`, never in the project. The daemon
does not change `config.toml`, which may be generated, be a link into one of the user's
repositories, or be open in an editor. Users can edit the file of rules. A change takes effect at
once; while the file is invalid, none of its rules apply.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from tiller_daemon.private import make_directory, replace_private
from tiller_daemon.stamps import Stamp, take_stamps
from tiller_protocol.settings import Rule

RULES_FILE: Final = "rules.json"

RULES_MAX: Final = 1_000
"""The most rules in the file. Each decision about a call goes through its workspace's rules."""

ID_BYTES: Final = 6
"""The length of the digest that identifies a rule; in practice, no two rules get the same one."""


class LastingRule(Rule, frozen=True):
    """A granted rule that outlives its session."""

    granted: bool = True


class StoredRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A lasting rule in the file, which allows a permission for everything a pattern matches."""

    permission: str
    pattern: str
    granted_at: float = 0.0
    """When the user granted the rule, in Unix seconds."""
    by: str = ""
    """The frontend in which the user granted the rule."""


class _RulesFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file; workspaces are absolute paths without links."""

    workspaces: dict[str, tuple[StoredRule, ...]] = {}


WEAKENING = frozenset({"unsandboxed", "protected_path"})
"""Permissions that weaken the sandbox. Their rules count for one place only: from a worktree, they
would reach the checkout that it must not change, and from there, more than the worktree."""


class LastingRulesError(Exception):
    """The file can't be used or written; the message says why, as a sentence."""


class LastingRules:
    """The lasting rules in `file`, which is read again after a change.

    `checkout_of` returns, for a place in a worktree, the same place in the checkout that it was
    made from, whose rules apply there, too.
    """

    def __init__(self, file: Path, checkout_of: Callable[[str], str] = str) -> None:
        self.checkout_of: Final = checkout_of
        self._file: Final = file
        self._known: tuple[tuple[Stamp, ...], _RulesFile | str] | None = None
        """The stamp and the content of the file, if they are known."""

    def of(self, workspace: str | Path) -> tuple[LastingRule, ...]:
        """Return the rules of a workspace; no rules while the file is invalid."""
        try:
            kept = self._read().workspaces
        except LastingRulesError:
            return ()
        if not kept:
            return ()
        own, *others = self._places(workspace)
        rules = [*kept.get(own, ())]
        rules += (
            one
            for place in others
            for one in kept.get(place, ())
            if one.permission not in WEAKENING
        )
        return tuple(LastingRule(one.permission, one.pattern, "allow") for one in rules)

    def all(self, workspace: str | None = None) -> Mapping[str, tuple[StoredRule, ...]]:
        """Return the rules of one or all workspaces, by workspace; raises `LastingRulesError`."""
        kept = self._read().workspaces
        if workspace is None:
            return kept
        return {place: kept[place] for place in self._places(workspace) if place in kept}

    def problem(self) -> str:
        """Return why the file can't be used, as a sentence; empty if it can be used."""
        try:
            self._read()
        except LastingRulesError as error:
            return str(error)
        return ""

    def add(self, workspace: str | Path, rules: Iterable[StoredRule]) -> None:
        """Keep rules for a workspace; raises `LastingRulesError` without changing anything."""
        workspaces, place = dict(self._read().workspaces), os.path.realpath(workspace)
        there = workspaces.get(place, ())
        known = {(one.permission, one.pattern) for one in there}
        new = tuple(one for one in rules if (one.permission, one.pattern) not in known)
        workspaces[place] = there + new
        if sum(map(len, workspaces.values())) > RULES_MAX:
            raise LastingRulesError(
                f"There can be at most {RULES_MAX:,} lasting rules. Revoke some with "
                "`tiller rules revoke`."
            )
        self._save(workspaces)

    def remove(self, identifier: str) -> bool:
        """Remove the rule with this id (`rule_id`); return whether the rule existed.

        Raises `LastingRulesError` without changing anything.
        """
        before = self._read().workspaces
        after = {
            place: tuple(
                one for one in rules if rule_id(place, one.permission, one.pattern) != identifier
            )
            for place, rules in before.items()
        }
        if after == before:
            return False
        self._save({place: rules for place, rules in after.items() if rules})
        return True

    def _places(self, workspace: str | Path) -> Iterable[str]:
        place = os.path.realpath(workspace)
        return dict.fromkeys((place, self.checkout_of(place)))

    def _read(self) -> _RulesFile:
        stamps, known = take_stamps([self._file], time.time_ns()), self._known
        read = known[1] if known and known[0] == stamps else self._read_file()
        self._known = (stamps, read) if stamps else None
        if isinstance(read, str):
            raise LastingRulesError(f"{self._file} can't be used: {read}.")
        return read

    def _read_file(self) -> _RulesFile | str:
        """Return the content of the file, or why it can't be used, as a clause."""
        try:
            if not self._file.exists():
                return _RulesFile()
            # A FIFO would block the daemon.
            if not self._file.is_file():
                return "it is not a regular file"
            if self._file.stat().st_mode & stat.S_IWOTH:
                return "every user of this machine can write to it; run `chmod go-w` on it"
            found = msgspec.json.decode(self._file.read_bytes(), type=_RulesFile)
        except OSError as error:
            return error.strerror or "it is unreadable"
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return str(error)
        count = sum(map(len, found.workspaces.values()))
        return found if count <= RULES_MAX else f"it has more than {RULES_MAX:,} rules"

    def _save(self, workspaces: dict[str, tuple[StoredRule, ...]]) -> None:
        try:
            make_directory(self._file.parent)
            data = msgspec.json.format(msgspec.json.encode(_RulesFile(workspaces))) + b"\n"
            # A link to a file elsewhere stays a link.
            replace_private(Path(os.path.realpath(self._file)), data)
        except OSError as error:
            reason = error.strerror or "unknown"
            raise LastingRulesError(f"{self._file} can't be written: {reason}.") from None


def rule_id(place: str, permission: str, pattern: str) -> str:
    """Return the id of a rule, a digest of its parts; `place` is a workspace or a session."""
    about = "\0".join((place, permission, pattern)).encode(errors="surrogatepass")
    return hashlib.blake2b(about, digest_size=ID_BYTES).hexdigest()
