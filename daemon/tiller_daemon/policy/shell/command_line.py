"""Splits a command line into its simple commands. Pure.

The parser is tree-sitter. Commands are found everywhere: in pipes, loops, functions and
substitutions. They decide which rules match and which level a line gets. A mistake costs no
more than a needless question, because the sandbox limits the line whatever it does.

Only `plain` must never be wrong: rules let a plain line out of the read-only sandbox, so no other
command than the ones found may run. A line is plain if every node of its syntax tree is on a short
list and only blanks separate the nodes.
"""

import functools
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from tiller_daemon.policy.shell.programs import find_program, word_set

LINE_BYTES_MAX: Final = 20_000
"""The longest line that is parsed."""

NESTING_MAX: Final = 60
"""The depth of the deepest node that is visited; ordinary lines stay below 20."""

SCRIPTS_NESTED_MAX: Final = 5
"""How many levels of `sh -c 'sh -c …'` are parsed."""

LINES_CACHED: Final = 64
"""One call parses the same line several times, at 0.1 ms each, so parsed lines are cached."""

_LANGUAGE: Final = Language(tree_sitter_bash.language())

SHELLS: Final = word_set("sh bash dash zsh ksh ash")

_EVALUATE: Final = word_set("eval trap")
"""Builtins that run their arguments as a command line."""

_GIVES_SCRIPT: Final = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*\Z")

_PLAIN_NODES: Final = word_set(
    """program list pipeline command command_name redirected_statement word string raw_string
    string_content number concatenation simple_expansion variable_name special_variable_name
    command_substitution file_redirect file_descriptor heredoc_redirect heredoc_start
    heredoc_body heredoc_end test_operator"""
)
_PLAIN_TOKENS: Final = frozenset(
    ["&&", "||", "|", ";", "\n", "$(", ")", '"', "$", ">", ">>", "<", ">&", "&>", "&>>", "<<"]
)
_WORDS: Final = word_set(
    """word string raw_string number concatenation simple_expansion expansion ansi_c_string
    command_substitution process_substitution brace_expression arithmetic_expansion
    translated_string extglob_pattern == =~"""
)
_BLANK: Final = re.compile(r"(?:(?:\\\n)*[ \t\n](?:[ \t\n]|\\\n)*)?\Z")
"""Blanks that separate words; a line continuation (`\\`) alone does not."""

_ON_ONE_LINE: Final = frozenset({"command", "redirected_statement", "file_redirect"})
_END_OF_LINE: Final = re.compile(r"(?<!\\)\n")
_SPELLED: Final = {
    "simple_expansion": re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9?#@*!$-])\Z"),
    "file_descriptor": re.compile(r"[0-9]+\Z"),
}

_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]"
)
"""Characters that parsers and shells treat differently, or that readers can't see."""

_UNSURE_WORD: Final = re.compile(r"\s|[{}]|\A[!#=~]|\A(?:time|coproc|function|select)\Z")
"""Unquoted words that a shell may take for something other than a plain word."""

_NAME: Final = re.compile(r"[A-Za-z0-9_./+@:%-]+\Z|\[\[?\Z", re.ASCII)
_DASH: Final = re.compile(r"[ \t]+-[ \t]+\Z")
_HEREDOC_END: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_NOWHERE: Final = re.compile(r"/dev/(?:null|stdout|stderr|tty)\Z")
_TEMPORARY: Final = re.compile(r"/tmp/(?!.*\.\.)")  # noqa: S108
"""Every sandbox has a private `/tmp`."""

_WRAPPER_ARGUMENT: Final = re.compile(r"-|\d+(?:\.\d+)?[smhd]?\Z|\w+=|\{\}\Z|\Z")
"""Arguments of a wrapper that can't be the name of the wrapped command."""


class Word(NamedTuple):
    """A word's value if it is `fixed`, otherwise its source, as the shell computes the value."""

    text: str
    fixed: bool = True


class SimpleCommand(NamedTuple):
    """A program or builtin and its arguments; the first word names it."""

    words: tuple[Word, ...]

    assigns: bool = False
    """Whether variables are set for the command (`X=1 make`)."""

    fed: bool = False
    """Whether the command's input is redirected from a file."""

    function: str = ""
    """The innermost function whose body contains the command; empty outside of functions."""

    @property
    def text(self) -> str:
        """The text that rules match: the words without quotes, separated by blanks."""
        return " ".join(word.text for word in self.words if word.text)

    @property
    def name(self) -> str:
        """The program without its directory; empty if only the shell knows the program."""
        first = self.words[0]
        return os.path.basename(first.text) if first.fixed and _NAME.match(first.text) else ""  # noqa: PTH119

    def inner(self) -> Iterator["SimpleCommand"]:
        """Yield the commands that a wrapper may run; any of its arguments may begin a command."""
        if find_program(self.name).wraps:
            for start in range(1, len(self.words)):
                yield SimpleCommand(self.words[start:])

    def wrapped(self) -> "SimpleCommand | None":
        """Return the command that a wrapper most likely runs; None if there is none."""
        named = (one for one in self.inner() if not _WRAPPER_ARGUMENT.match(one.words[0].text))
        return next(named, None)


class CommandLine(NamedTuple):
    """A parsed command line."""

    commands: tuple[SimpleCommand, ...]
    """All simple commands in the line."""

    writes: tuple[str, ...] = ()
    """Files to which the line redirects output."""

    functions: frozenset[str] = frozenset()
    """Names of functions that the line defines."""

    problem: str = ""
    """Why the line was not understood, as a clause; empty if it was."""

    plain: bool = False
    """Whether certainly only `commands` run, with exactly these names."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The files outside `/tmp` to which the line redirects output."""
        return tuple(path for path in self.writes if not _TEMPORARY.match(path))


@functools.lru_cache(LINES_CACHED)
def parse(text: str) -> CommandLine:
    """Split a line into simple commands, including commands in `sh -c '…'`; never raises."""
    return _parse(text, 0)


def _parse(text: str, depth: int) -> CommandLine:
    data = text.encode(errors="replace")
    if len(data) > LINE_BYTES_MAX:
        return CommandLine((), problem="it is too long")
    root = Parser(_LANGUAGE).parse(data).root_node
    reader = _Reader(data)
    reader.visit(root, 0)
    commands = list(reader.commands)
    problem = "it can't be parsed" if root.has_error else reader.problem
    plain = reader.plain and not problem and not _INVISIBLE.search(text)
    plain = plain and reader.is_blank(0, root.start_byte) and reader.is_blank(root.end_byte, None)
    writes, functions = list(reader.writes), set(reader.functions)
    for command in reader.commands:
        script = _script(command)
        if script is None:
            continue
        # Only the outer syntax is checked, so a line with an inner script is never plain.
        plain = False
        if not script:
            continue
        inner = _parse(script, depth + 1) if depth < SCRIPTS_NESTED_MAX else None
        problem = problem or (inner.problem if inner else "it is nested too deeply")
        if inner:
            function = command.function
            commands += (one._replace(function=one.function or function) for one in inner.commands)
            writes += inner.writes
            functions |= inner.functions
    if not commands and not problem and not reader.evaluates:
        problem = "it contains no command"
    if name := _recursive_function(commands, functions):
        problem = problem or f"its function `{name}` may call itself without end"
    return CommandLine(tuple(commands), tuple(writes), frozenset(functions), problem, plain)


def _script(command: SimpleCommand) -> str | None:
    """Return the line that a command evaluates, as `sh -c` does; None if it evaluates none.

    The result is empty if only the shell knows the line.
    """
    for one in (command, *command.inner()):
        if one.name in _EVALUATE:
            words = one.words[1:]
            return " ".join(word.text for word in words) if all(w.fixed for w in words) else ""
        if one.name in SHELLS:
            for flag, word in itertools.pairwise(one.words[1:]):
                if flag.fixed and _GIVES_SCRIPT.match(flag.text):
                    return word.text if word.fixed else ""
    return None


def _recursive_function(commands: Iterable[SimpleCommand], functions: set[str]) -> str:
    """Return the name of a function that may call itself, even through others; empty if none."""
    calls: dict[str, list[str]] = {}
    for command in commands:
        run: SimpleCommand | None = command
        while run and command.function:
            if run.name in functions:
                calls.setdefault(command.function, []).append(run.name)
            run = run.wrapped()
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as error:
        return error.args[1][0]
    return ""


class _Reader:
    """Walks the syntax tree once and collects the commands, redirections and functions."""

    def __init__(self, data: bytes) -> None:
        self.commands: list[SimpleCommand] = []
        self.writes: list[str] = []
        self.functions: set[str] = set()
        self.problem = ""
        self.plain = True
        self.evaluates = False
        self._function = ""
        self._data = data

    def is_blank(self, start: int, end: int | None) -> bool:
        return _BLANK.match(self._data[start:end].decode(errors="replace")) is not None

    def visit(self, node: Node, depth: int) -> None:
        """Collect the commands in a node, and check whether it is plain."""
        if depth > NESTING_MAX:
            self.problem = self.problem or "it is nested too deeply"
            return
        self._check_plain(node)
        outer = self._function
        match node.type:
            case "command":
                self._command(node, depth)
                return
            case "file_redirect":
                self._redirect(node)
            case "heredoc_redirect":
                self._heredoc(node)
            case "function_definition":
                name = node.child_by_field_name("name")
                self._function = self._source(name) if name else ""
                self.functions.add(self._function)
            case "variable_assignment" | "declaration_command" | "unset_command" | "test_command":
                self.evaluates = True
            case _:
                pass
        first = len(self.commands)
        for child in node.children:
            self.visit(child, depth + 1)
        self._function = outer
        if self._has_lost_dash(node):
            if only := len(self.commands) == first + 1:
                words = (*self.commands[first].words, Word("-"))
                self.commands[first] = self.commands[first]._replace(words=words)
            self.plain = self.plain and only
        if any(map(_feeds, node.children)):
            self.commands[first:] = [one._replace(fed=True) for one in self.commands[first:]]
            # `$(< file)` reads a file without a command.
            self.plain = self.plain and len(self.commands) > first

    def _check_plain(self, node: Node) -> None:
        """Clear `plain` for an unknown node, text between children, or an oddly spelled token."""
        source = self._source(node)
        if node.is_named:
            known = node.type in _PLAIN_NODES
        else:
            known = (node.type in _PLAIN_TOKENS and source == node.type) or not source.strip()
        spelled = _SPELLED.get(node.type)
        if not known or (spelled and not spelled.match(source)):
            self.plain = False
        # The text between their children is content, not syntax.
        if node.type in ("string", "heredoc_body", "concatenation"):
            return
        end = node.start_byte
        for child in node.children:
            if not (self.is_blank(end, child.start_byte) or self._has_lost_dash(node)):
                self.plain = False
            if node.type in _ON_ONE_LINE and _END_OF_LINE.search(self._text(end, child.start_byte)):
                self.plain = False
            end = child.end_byte
        if node.children and not self.is_blank(end, node.end_byte):
            self.plain = False

    def _has_lost_dash(self, node: Node) -> bool:
        """Whether a node is a command with `-` before a here-document; the parser drops the `-`."""
        if [child.type for child in node.children] != ["command", "heredoc_redirect"]:
            return False
        return bool(_DASH.match(self._text(node.children[0].end_byte, node.children[1].start_byte)))

    def _command(self, node: Node, depth: int) -> None:
        words: list[Word] = []
        assigns = False
        fed = any(map(_feeds, node.children))
        end = -1
        for child in node.children:
            if child.type in _WORDS or child.type == "command_name":
                if child.start_byte == end:
                    self.plain = False
                words.append(self._word(child))
                end = child.end_byte
            elif child.type not in ("file_redirect", "variable_assignment"):
                self.plain = False
            assigns = assigns or child.type == "variable_assignment"
        if words:
            command = SimpleCommand(tuple(words), assigns, fed, self._function)
            self.plain = self.plain and bool(command.name)
            self.commands.append(command)
        for child in node.children:
            self.visit(child, depth + 1)

    def _redirect(self, node: Node) -> None:
        tokens = [child.type for child in node.children if not child.is_named]
        targets = [child for child in node.named_children if child.type != "file_descriptor"]
        if len(targets) != 1:
            # `>&-`, or further words of the command after the redirection's target.
            self.plain = False
        for target in targets[:1]:
            word = self._word(target)
            joins = tokens in ([">&"], ["<&"]) and word.text.isdecimal() and word.text.isascii()
            if tokens != ["<"] and not joins and not (word.fixed and _NOWHERE.match(word.text)):
                self.writes.append(word.text)

    def _heredoc(self, node: Node) -> None:
        """Clear `plain` if a here-document may expand anything, or its end is not certain."""
        start = next((self._source(c) for c in node.children if c.type == "heredoc_start"), "")
        body = next((c for c in node.children if c.type == "heredoc_body"), None)
        quoted = start[:1] in ("'", '"') and start[-1:] == start[:1] and len(start) > 2
        end = start[1:-1] if quoted else start
        lines = self._text(body.start_byte, node.end_byte).split("\n") if body else []
        as_seen = bool(lines) and lines[-1] == end and end not in lines[:-1]
        # Words after the delimiter are arguments of the command.
        words = any(child.type in _WORDS for child in node.children)
        if words or not (quoted and as_seen and _HEREDOC_END.match(end)):
            self.plain = False

    def _word(self, node: Node) -> Word:
        """Return the value of a word; `visit` collects the commands in it."""
        source = self._source(node)
        match node.type:
            case "command_name":
                return self._word(node.children[0]) if node.children else Word(source)
            case "word" | "number" if not node.named_children:
                bare = re.sub(r"\\.", "", source, flags=re.DOTALL)
                if _UNSURE_WORD.search(bare) and not re.fullmatch(r"[\w./^~@-]*@\{\w+\}", bare):
                    self.plain = False
                value = re.sub(r"\\(.)", r"\1", source.replace("\\\n", ""), flags=re.DOTALL)
                expands = bare not in ("{}", "[", "[[") and any(sign in bare for sign in "*?[{")
                return Word(value, fixed=not expands)
            case "raw_string":
                return Word(source[1:-1])
            case "string":
                expands = any(child.type != "string_content" for child in node.named_children)
                if not expands and re.search(r"[$`]", re.sub(r"\\.", "", source)):
                    self.plain = False
                text = re.sub(r'\\([$`"\\])', r"\1", source[1:-1].replace("\\\n", ""))
                return Word(source, fixed=False) if expands else Word(text)
            case "concatenation":
                parts = [self._word(child) for child in node.children]
                pairs = itertools.pairwise(node.children)
                if any(before.end_byte != after.start_byte for before, after in pairs):
                    self.plain = False
                if all(part.fixed for part in parts):
                    return Word("".join(part.text for part in parts))
            case "==" | "=~":
                return Word(source)
            case _:
                pass
        return Word(source, fixed=False)

    def _source(self, node: Node) -> str:
        return self._text(node.start_byte, node.end_byte)

    def _text(self, start: int, end: int) -> str:
        return self._data[start:end].decode(errors="replace")


def _feeds(node: Node) -> bool:
    return node.type == "file_redirect" and any(child.type == "<" for child in node.children)
