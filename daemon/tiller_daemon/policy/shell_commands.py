"""What a command line would run, whether it only reads, and what `always` would allow. Pure.

`shell_syntax` takes the text apart, `shell_wrappers` looks inside commands that run others,
`shell_reading` knows what only reads. Whatever is not understood makes the whole uncertain.
"""

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

from tiller_daemon.policy import globs
from tiller_daemon.policy.shell_patterns import pattern_of
from tiller_daemon.policy.shell_places import files_shown, places_named
from tiller_daemon.policy.shell_reading import only_reads as reads_only
from tiller_daemon.policy.shell_reading import takes_unknown
from tiller_daemon.policy.shell_syntax import parse
from tiller_daemon.policy.shell_words import SimpleCommand, Word
from tiller_daemon.policy.shell_working import works
from tiller_daemon.policy.shell_wrappers import base_name, unwrap

SCRIPTS_NESTED_MAX = 5
"""Deepest `sh -c 'sh -c …'` that is looked into."""

PARSED_KEPT_MAX = 64
"""Texts whose parts are kept: one call is judged some ten times, at 0.1 ms each."""

_NAME = re.compile(r"[A-Za-z0-9_./+@:%][A-Za-z0-9_./+@:%-]*\Z")

_CHANGES_PLACE = frozenset({"cd", "pushd", "popd"})


class Command(NamedTuple):
    """One command that needs a permission.

    `text` is what rules are matched against: the words without quotes, joined by a blank.
    `other_spellings` count for denials only. One that `works` builds, tests or checks. `shows` may
    name files whose content is shown.
    """

    text: str
    other_spellings: tuple[str, ...]
    only_reads: bool
    works: bool
    shows: tuple[str, ...]
    syntax: SimpleCommand


class Parsed(NamedTuple):
    """A command line taken apart.

    `wrappers` are commands that add nothing to what they run. `doubt` says in words why the parts
    may not be all that runs; it is empty when they are. `directories` are where git is sent to.
    """

    commands: tuple[Command, ...]
    wrappers: tuple[str, ...]
    doubt: str
    directories: tuple[str, ...] = ()

    @property
    def certain(self) -> bool:
        """Whether the parts are all that the text runs, and it writes no file by itself."""
        return not self.doubt

    @property
    def only_reads(self) -> bool:
        """Whether every part provably only reads."""
        return self.certain and all(command.only_reads for command in self.commands)


class Parts(NamedTuple):
    """The commands of a text as rules see them, and whether they are all that it runs."""

    commands: tuple[str, ...]
    certain: bool


def judge_parts(command: str) -> Parts:
    """The simple commands of a command line, those inside wrappers included; never raises."""
    parsed = parse_command(command)
    texts = [part.text for part in parsed.commands]
    return Parts(tuple(dict.fromkeys((*texts, *parsed.wrappers))), parsed.certain)


def only_reads(command: str, place: str = "") -> bool:
    """Whether a command line provably changes nothing; such a call may run beside others."""
    return parse_command(command, place).only_reads


def stays_inside(command: str, place: str = "") -> bool:
    """Whether all of a command line reads, builds, tests or checks."""
    parsed = parse_command(command, place)
    return parsed.certain and all(part.only_reads or part.works for part in parsed.commands)


def places_read(command: str, place: str = "") -> tuple[str, ...] | None:
    """The words of such a command line that may name files and directories.

    `None` when only its run will tell one of them.
    """
    parsed = parse_command(command, place)
    words = [word for part in parsed.commands for word in places_named(part.syntax)]
    places: dict[str, None] = dict.fromkeys(parsed.directories)
    for word in words:
        known = (word.text,) if word.fixed else word.places
        if known is None:
            return None
        places.update(dict.fromkeys(known))
    shown = (word for part in parsed.commands for word in part.shows)
    return (*places, *(word for word in dict.fromkeys(shown) if word not in places))


def always_patterns(command: str) -> tuple[str, ...]:
    """What the answer `always` would allow: a pattern for each part that does more than read.

    When all of it only reads, and it was asked about nonetheless, the exact parts. None when the
    text is not certain: then only the user can say what to allow.
    """
    parsed = parse_command(command)
    if not parsed.certain:
        return ()
    if parsed.only_reads:
        return tuple(dict.fromkeys(globs.escape(part.text) for part in parsed.commands))
    asked = [part for part in parsed.commands if not part.only_reads]
    return tuple(dict.fromkeys(pattern_of(part.syntax, part.text) for part in asked))


@functools.lru_cache(PARSED_KEPT_MAX)
def parse_command(text: str, place: str = "") -> Parsed:
    """Take a command line apart that is run in the directory `place`; never raises."""
    gathered = _Gathered(place.rstrip("/"))
    gathered.add_script(text, 0, reading=True)
    if not gathered.commands and not gathered.doubts and not gathered.assigns:
        gathered.doubts.append("it holds no command")
    return Parsed(
        tuple(gathered.commands),
        tuple(gathered.wrappers),
        next(iter(gathered.doubts), ""),
        tuple(gathered.directories),
    )


class _Gathered:
    """The parts found so far."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.commands: list[Command] = []
        self.wrappers: list[str] = []
        self.doubts: list[str] = []
        self.directories: list[str] = []
        self.assigns = False

    def add_script(self, text: str, depth: int, *, reading: bool) -> None:
        if depth > SCRIPTS_NESTED_MAX:
            self.doubts.append("it is nested too deeply")
            return
        syntax = parse(text)
        if syntax.doubt:
            self.doubts.append(syntax.doubt)
        self.assigns |= syntax.assigns
        elsewhere = any(self._changes_place(command) for command in syntax.commands)
        for command in syntax.commands:
            self.add(command, depth, reads=syntax.reads, reading=reading, elsewhere=elsewhere)

    def add(
        self,
        command: SimpleCommand,
        depth: int,
        *,
        reads: Sequence[str],
        reading: bool,
        elsewhere: bool,
    ) -> None:
        """Note a command and what it runs; `reading` is false inside what does not only read.

        `elsewhere` says that the script changes the directory: the configuration that git finds
        there may run programs.
        """
        name = command.words[0]
        self._check_words(command)
        unwrapped = unwrap(command, self.place)
        if unwrapped.doubt:
            self.doubts.append(unwrapped.doubt)
        if unwrapped.directory:
            self.directories.append(unwrapped.directory)
        text = " ".join(word.text for word in command.words if word.text)
        if unwrapped.replaces:
            self.wrappers.append(text)
            reading = reading and name.text != "nohup"
        else:
            reads_itself = (
                reading and reads_only(command) and not (elsewhere and name.text == "git")
            )
            works_itself = reading and not reads_itself and works(command)
            shows = (*files_shown(command), *reads)
            self.commands.append(
                Command(text, _spellings(command, text), reads_itself, works_itself, shows, command)
            )
        for inner in unwrapped.inner:
            self.add(inner, depth, reads=reads, reading=reading, elsewhere=elsewhere)
        if unwrapped.script is not None:
            self.add_script(unwrapped.script, depth + 1, reading=reading)

    def _changes_place(self, command: SimpleCommand) -> bool:
        stays = bool(self.place) and command.words[1:] in ((Word(self.place),), (Word("."),))
        return base_name(command) in _CHANGES_PLACE and not stays

    def _check_words(self, command: SimpleCommand) -> None:
        name = command.words[0]
        plain = name.fixed and not name.globs and _NAME.match(name.text)
        if not plain and name.text != "[":
            self.doubts.append("the name of a command in it is not plain")
        for index, word in enumerate(command.words):
            if index and not word.fixed and not takes_unknown(command, index):
                self.doubts.append(f"only its run will tell what `{name.text}` is given")


def _spellings(command: SimpleCommand, text: str) -> tuple[str, ...]:
    """The same command with the program's directory left out."""
    name = command.words[0].text
    base = base_name(command)
    return (base + text[len(name) :],) if base != name else ()
