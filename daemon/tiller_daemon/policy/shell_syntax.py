"""Takes a command line apart into simple commands with known words. Pure.

The parser is tree-sitter's, the judgement is a list of what is known to be harmless: any node, any
token and any gap between tokens that is not on it makes the whole text uncertain. Commands are
collected from uncertain text as well, so that a denial finds them.
"""

import itertools
import re
from collections.abc import Iterator

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from tiller_daemon.policy.shell_listing import lists_files
from tiller_daemon.policy.shell_values import Values
from tiller_daemon.policy.shell_words import (
    HARMLESS_VARIABLES,
    LOWER_NAME,
    NO_PAGER,
    NUMBER_OPERATORS,
    OWN_NAMES,
    TEST_OPERATORS,
    VARIABLE,
    SimpleCommand,
    Syntax,
    Word,
    braced,
    counts,
    doubt_of_heredoc,
    only_expands,
    word_set,
)

TEXT_BYTES_MAX = 20_000
"""Longest text that is taken apart."""

NESTING_MAX = 60
"""Deepest node that is looked at; ordinary commands stay below 20."""


_language = Language(tree_sitter_bash.language())

_HOLDERS = word_set(
    """program list subshell compound_statement negated_command if_statement elif_clause
    else_clause while_statement do_group case_statement case_item variable_assignments
    redirected_statement"""
)
"""Nodes that only hold others."""

_TOKENS = word_set(
    """; & && || | |& ( ) { } ! if then elif else fi while until do done for in case esac ;;
    $( ` <("""
) | {"\n"}

_CLOSERS = word_set("then do done else elif fi esac }")

_WORDS = word_set(
    """word raw_string string number concatenation simple_expansion expansion extglob_pattern
    command_substitution process_substitution brace_expression arithmetic_expansion"""
)

_TEST_HOLDERS = word_set("binary_expression unary_expression parenthesized_expression")
_TEST_TOKENS = word_set("[ ] [[ ]] ! ( ) && || = == !=")
_GAP = re.compile(r"(?:[ \t\n]|(?<=[ \t])\\\n)*\Z")
_TEST = re.compile(r"\[\[[ \t].*[ \t]\]\]\Z|\[[ \t][^\n&|()<>;]*[ \t]\]\Z", re.DOTALL)
"""A test as shells see it: brackets stand apart, and within single ones no command can end."""
_BRACES = re.compile(r"\{.*(?:,|\.\.).*\}", re.DOTALL)
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00a0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]"
)
"""Characters on which parsers and shells disagree, or that a reader does not see."""


def parse(text: str) -> Syntax:
    """Take `text` apart; never raises."""
    data = text.encode(errors="replace")
    if len(data) > TEXT_BYTES_MAX:
        return Syntax((), (), "it is too long")
    root = Parser(_language).parse(data).root_node
    reader = _Reader(data)
    if _ODD.search(text) or data.decode() != text:
        reader.doubt("it holds control or invisible characters")
    if root.has_error:
        reader.doubt("it can't be parsed")
    reader.check_gap(0, root.start_byte)
    reader.check_gap(root.end_byte, len(data))
    reader.visit(root, 0)
    commands = tuple(reader.values.commands())
    # Where nothing is run, nobody sees what a variable holds.
    doubts = reader.doubts + (reader.odd_names if commands else [])
    return Syntax(commands, tuple(reader.reads), next(iter(doubts), ""), reader.assigns)


class _Reader:
    """Walks the tree once and gathers."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.values = Values(len(data))
        self.reads: list[str] = []
        self.doubts: list[str] = []
        self.odd_names: list[str] = []
        self.assigns = False

    def doubt(self, why: str) -> None:
        self.doubts.append(why)

    def text(self, start: int, end: int) -> str:
        return self.data[start:end].decode(errors="replace")

    def source(self, node: Node) -> str:
        return self.text(node.start_byte, node.end_byte)

    def check_gap(self, start: int, end: int) -> None:
        if not _GAP.match(self.text(start, end)):
            self.doubt("it holds text that the parser passes over")

    def children(self, node: Node) -> Iterator[Node]:
        """The children; each gap between them is looked at, and that a token is what it says."""
        end = node.start_byte
        apart = False
        for child in node.children:
            self.check_gap(end, child.start_byte)
            if apart and end == child.start_byte:
                self.doubt("it holds a sign that may be part of a word")
            if not child.is_named and child.type in _CLOSERS and not self._stands_alone(child):
                self.doubt(f"it holds a `{child.type}` that may be a mere word")
            apart = not child.is_named and child.type in ("!", "{")
            if not child.is_named and self.source(child).strip() != child.type.strip():
                self.doubt(f"it holds an odd `{child.type}`")
            end = child.end_byte
            yield child
        self.check_gap(end, node.end_byte)

    def _stands_alone(self, token: Node) -> bool:
        """Whether a reserved word comes where a command could."""
        return self.text(0, token.start_byte).rstrip(" \t").endswith((";", "\n", "&"))

    def visit(self, node: Node, depth: int) -> None:
        """Look at a statement, or at a token between statements."""
        kind = node.type
        if depth > NESTING_MAX:
            self.doubt("it is nested too deeply")
        elif kind == "command":
            self._command(node, depth)
        elif kind == "file_redirect":
            self._redirect(node, depth)
        elif kind == "heredoc_redirect":
            self._heredoc(node, depth)
        elif kind == "variable_assignment":
            self._assignment(node, depth, alone=True)
        elif kind == "for_statement":
            self._for(node, depth)
        elif kind == "test_command":
            self._test(node, depth, single=not self.source(node).startswith("[["))
        elif kind == "comment":
            self._comment(node)
        elif kind in _WORDS:
            self.word(node, depth)
        elif kind == "pipeline":
            self._pipeline(node, depth)
        elif kind in _HOLDERS:
            for child in self.children(node):
                self.visit(child, depth + 1)
        elif node.is_named or kind not in _TOKENS:
            self._unknown(node, depth)

    def _pipeline(self, node: Node, depth: int) -> None:
        before = len(self.values)
        for child in self.children(node):
            listed = lists_files(self.values.since(before))
            self.visit(child, depth + 1)
            if listed is not None and child.type in ("command", "redirected_statement"):
                self.values.feed_last(listed)

    def _unknown(self, node: Node, depth: int) -> None:
        """Something that is not on a list: a doubt, but the commands in it are gathered."""
        self.doubt(f"it holds `{node.type}`")
        for child in node.children:
            self.visit(child, depth + 1)

    def _command(self, node: Node, depth: int) -> None:
        words: list[Word] = []
        end = node.start_byte
        for child in node.children:
            gap = self.text(end, child.start_byte)
            if not _GAP.match(gap) or (words and " " not in gap and "\t" not in gap):
                self.doubt("it holds words that are not apart")
            end = child.end_byte
            if child.type == "variable_assignment":
                self._assignment(child, depth + 1, alone=False)
            elif child.type == "command_name":
                words.append(self.word(child.children[0], depth + 1))
            elif child.type in _WORDS:
                words.append(self.word(child, depth + 1))
            elif child.type in ("==", "=~"):
                words.append(Word(child.type))
            elif child.type == "herestring_redirect":
                for inner in child.named_children:
                    self.word(inner, depth + 1)
            else:
                self.visit(child, depth + 1)
        if words:
            self.values.add(SimpleCommand(tuple(words)), node.start_byte)

    def _redirect(self, node: Node, depth: int) -> None:
        """Reading a file, joining descriptors and writing to nowhere are harmless."""
        tokens = [child.type for child in self.children(node) if not child.is_named]
        count = len(self.values)
        targets = [
            self.word(child, depth + 1)
            for child in node.named_children
            if child.type != "file_descriptor"
        ]
        if self._belongs_before(node, targets, count):
            self.values.extend_last(targets[1:])
            del targets[1:]
        descriptors = [self.source(c) for c in node.children if c.type == "file_descriptor"]
        if any(not re.fullmatch(r"\d{1,2}", one, re.ASCII) for one in descriptors):
            self.doubt("it redirects what may be no descriptor")
        target = targets[0] if len(targets) == 1 else Word("", fixed=False)
        if tokens == ["<"] and target.fixed and not target.text.startswith("/dev/"):
            self.reads.append(target.text)
        elif (tokens in (["<&-"], [">&-"]) and not targets) or (
            tokens in ([">&"], ["<&"]) and target.fixed and target.text.isdecimal()
        ):
            pass
        elif not (tokens in (["<"], [">"], [">>"], ["&>"], ["&>>"]) and target.text == "/dev/null"):
            self.doubt("it redirects output into a file")

    def _belongs_before(self, node: Node, targets: list[Word], count: int) -> bool:
        """Whether what follows the target of `echo >&2 words` are plainly words of the command."""
        body = node.parent.children[0] if node.parent else node
        words = [child for child in node.named_children if child.type != "file_descriptor"]
        apart = all(a.end_byte < b.start_byte for a, b in itertools.pairwise(words))
        return (
            len(targets) > 1 and body.type == "command" and 0 < count == len(self.values) and apart
        )

    def _heredoc(self, node: Node, depth: int) -> None:
        """Plain text for the standard input, and what stands behind `<<END` on the same line."""
        for child in self.children(node):
            if child.type == "heredoc_start":
                self._heredoc_text(node, self.source(child))
            elif child.type in _HOLDERS | {"command", "pipeline", "file_redirect"}:
                self.visit(child, depth + 1)
            elif child.type not in ("<<", "<<-", "heredoc_body", "heredoc_end", "&&", "||", "|"):
                self._unknown(child, depth)

    def _heredoc_text(self, node: Node, start: str) -> None:
        bodies = [child for child in node.children if child.type == "heredoc_body"]
        lines = self.text(bodies[0].start_byte, node.end_byte).split("\n") if bodies else []
        if why := doubt_of_heredoc(start, lines):
            self.doubt(why)

    def _assignment(self, node: Node, depth: int, *, alone: bool) -> None:
        parts = list(self.children(node))
        name = self.source(parts[0])
        plain = parts[0].type == "variable_name" and VARIABLE.match(name)
        if not plain or parts[1].type not in ("=", "+="):
            self.doubt(f"it sets `{name}`")
            return
        self.assigns = True
        values = [self.word(value, depth + 1) for value in parts[2:]]
        if alone:
            known = LOWER_NAME.match(name) or name in OWN_NAMES
            replaces = parts[1].type == "="
            self.values.assign(name, (values or [Word("")])[0] if replaces else None, node)
        else:
            quiet = name in NO_PAGER and [value.text for value in values] == ["cat"]
            known = quiet or (name in HARMLESS_VARIABLES and parts[1].type == "=")
        if not known:
            self.odd_names.append(f"it sets `{name}`")

    def _for(self, node: Node, depth: int) -> None:
        name = ""
        words: list[Word] = []
        for child in self.children(node):
            if child.type == "variable_name":
                name = self.source(child)
                if not (LOWER_NAME.match(name) or name in OWN_NAMES):
                    self.doubt(f"it sets `{name}`")
            elif child.type in _WORDS:
                words.append(self.word(child, depth + 1))
            else:
                self.visit(child, depth + 1)
        self.values.loop(name, words, node.children[-1])

    def _test(self, node: Node, depth: int, *, single: bool = True) -> None:
        if node.type == "test_command" and not _TEST.match(self._without_strings(node)):
            self.doubt("it holds brackets that may be no test")
        known = TEST_OPERATORS | (NUMBER_OPERATORS if single else frozenset[str]())
        for child in self.children(node):
            if child.type in _TEST_HOLDERS and depth < NESTING_MAX:
                self._test(child, depth + 1, single=single)
            elif child.type == "test_operator" and self.source(child) in known:
                pass
            elif child.type in ("word", "raw_string", "string", "number", "extglob_pattern"):
                self.word(child, depth + 1)
            elif child.is_named or child.type not in _TEST_TOKENS:
                self._unknown(child, depth)

    def _without_strings(self, node: Node) -> str:
        """The source of a test; what stands between quotes is judged by itself."""
        if node.type == "string" and b"`" not in self.data[node.start_byte : node.end_byte]:
            return "_"
        if not any(child.type in {"string", *_TEST_HOLDERS} for child in node.children):
            return self.source(node)
        pieces: list[str] = []
        end = node.start_byte
        for child in node.children:
            pieces += [self.text(end, child.start_byte), self._without_strings(child)]
            end = child.end_byte
        return "".join(pieces)

    def _comment(self, node: Node) -> None:
        before = self.text(max(node.start_byte - 2, 0), node.start_byte)
        parent = node.parent
        top = parent is None or parent.type in ("program", "do_group", "if_statement")
        if not top or before[-1:] not in ("", " ", "\t", "\n", ";") or before[:1] == "\\":
            self.doubt("it holds a comment that may be none")

    def word(self, node: Node, depth: int) -> Word:
        """The value of a word; substitutions in it are visited."""
        source = self.source(node)
        if depth > NESTING_MAX:
            self.doubt("it is nested too deeply")
            return Word(source, fixed=False)
        match node.type:
            case "word" | "number" | "extglob_pattern" if not node.named_children:
                value = re.sub(r"\\(.)", r"\1", source.replace("\\\n", ""), flags=re.DOTALL)
                unescaped = re.sub(r"\\.", "", source, flags=re.DOTALL)
                globs = any(character in unescaped for character in "*?[")
                if re.search(r"\s", unescaped):
                    self.doubt("it holds a word with a blank")
                if _BRACES.search(unescaped):
                    return braced(source)
                return Word(value, globs=globs)
            case "raw_string":
                return Word(source[1:-1])
            case "string":
                return self._string(node, source, depth)
            case "concatenation":
                return self._concatenation(node, source, depth)
            case "simple_expansion" | "expansion" | "arithmetic_expansion":
                if not only_expands(source):
                    self._unknown(node, depth)
            case "brace_expression":
                if not counts(source):
                    self._unknown(node, depth)
                return Word(source, fixed=False, globs=True, places=())
            case "command_substitution" | "process_substitution":
                if source.startswith("`") and re.search(r"[\\`]", source[1:-1]):
                    # The shell ends it at the next backtick, quoted or not, and takes backslashes
                    # off what is in it before it looks at that.
                    self.doubt("it holds backslashes or backticks between backticks")
                return self._substitution(node, source, depth)
            case _:
                self._unknown(node, depth)
        return Word(source, fixed=False, globs=True)

    def _substitution(self, node: Node, source: str, depth: int) -> Word:
        before = len(self.values)
        for child in self.children(node):
            self.visit(child, depth + 1)
        if node.type == "process_substitution":
            return Word(source, fixed=False, places=())
        listed = lists_files(self.values.since(before))
        return Word(source, fixed=False, globs=True, places=listed and listed.places)

    def _string(self, node: Node, source: str, depth: int) -> Word:
        inner = [child for child in node.named_children if child.type != "string_content"]
        for child in inner:
            self.word(child, depth + 1)
        if inner:
            return Word(source, fixed=False)
        if re.search(r"[$`]", re.sub(r"\\.", "", source, flags=re.DOTALL)):
            self.doubt("it holds a string that is not plain")
        return Word(re.sub(r'\\([$`"\\])', r"\1", source[1:-1].replace("\\\n", "")))

    def _concatenation(self, node: Node, source: str, depth: int) -> Word:
        parts = [self.word(child, depth + 1) for child in node.children]
        if any(a.end_byte != b.start_byte for a, b in itertools.pairwise(node.children)):
            self.doubt("it holds a word with gaps")
        globs = any(part.globs for part in parts)
        if _BRACES.search(source):
            return braced(source)
        if not all(part.fixed for part in parts):
            return Word(source, fixed=False, globs=globs)
        return Word("".join(part.text for part in parts), globs=globs)
