"""What is found in a command line, and when that is surely all that runs (B38).

`test_against_bash` compares it with what bash runs.
"""

import shlex

import pytest

from policy.shell.command_lines import HONEST
from support.each import each
from tiller_daemon.policy.shell.command_line import LINE_BYTES_MAX, parse


def found(text: str) -> tuple[str, ...]:
    return tuple(command.text for command in parse(text).commands)


@each(
    ("text", "commands"),
    [
        ("ls && rm -rf x", ("ls", "rm -rf x")),
        ("ls; pwd | wc -l", ("ls", "pwd", "wc -l")),
        ("echo $(date +%s) `whoami`", ("echo $(date +%s) `whoami`", "date +%s", "whoami")),
        ("diff <(ls a) <(ls b)", ("diff <(ls a) <(ls b)", "ls a", "ls b")),
        ("if a; then b; else c; fi", ("a", "b", "c")),
        ("while read x; do a $x; done < f", ("read x", "a $x")),
        ("f() { a; }; f", ("a", "f")),
        ("x=$(a); b", ("a", "b")),
        ("sh -c 'make && ls'", ("sh -c make && ls", "make", "ls")),
        ("timeout 5 bash -xec 'make; ls'", ("timeout 5 bash -xec make; ls", "make", "ls")),
        ("""sh -c 'sh -c "rm x"'""", ('sh -c sh -c "rm x"', "sh -c rm x", "rm x")),
        ("eval 'rm x' y", ("eval rm x y", "rm x y")),
        ("trap 'rm x' EXIT", ("trap rm x EXIT", "rm x EXIT")),
        ("'l's \"a b\"\nmake", ("ls a b", "make")),
        ("\"r\"m 'a'\\ b", ("rm a b",)),
        ("cat <<'E'\nrm x\nE\nls", ("cat", "ls")),
        ("cat <<E\n$(rm x)\nE", ("cat", "rm x")),
    ],
)
def test_every_command_of_a_line_is_found(text, commands):
    assert found(text) == commands


@each(
    ("text", "inner"),
    [
        ("sudo rm x", "rm x"),
        ("timeout 5 nice -n 3 make", "make"),
        ("find . -exec rm {} +", "rm {} +"),
        ("git ls-files | xargs -0 rm", "rm"),
    ],
)
def test_a_wrapper_says_what_it_may_run(text, inner):
    assert inner in [one.text for one in parse(text).commands[-1].inner()]


@each(
    ("text", "name"),
    [("/bin/rm x", "rm"), ("./a/b.sh", "b.sh"), ("$x a", ""), ("'a b' c", ""), ("l? x", "")],
)
def test_a_command_has_the_name_of_its_program_if_that_is_certain(text, name):
    assert parse(text).commands[0].name == name


@each(
    ("text", "writes", "changes"),
    [
        ("a > f", ("f",), ("f",)),
        ("a 2>> f | b &> g", ("f", "g"), ("f", "g")),
        ("a > $x", ("$x",), ("$x",)),
        ("a > /tmp/f", ("/tmp/f",), ()),
        ("a > /tmp/../f", ("/tmp/../f",), ("/tmp/../f",)),
        ("a > /dev/null 2>&1; b < f", (), ()),
        ("ls >&１", ("１",), ("１",)),  # noqa: RUF001 - a file of that name, and no descriptor
        ("sh -c 'a > f'", ("f",), ("f",)),
    ],
)
def test_what_a_line_writes_to_is_found(text, writes, changes):
    assert parse(text).writes == writes
    assert parse(text).changes == changes


@each("text", ["a < f", "< f a", "{ a; } < f", "b | a < f"])
def test_a_command_that_is_fed_from_a_file_is_known(text):
    assert parse(text).commands[-1].fed
    assert not parse("a | b").commands[-1].fed


def test_the_names_that_a_line_defines_are_known():
    assert parse("f() { ls; }; function g { pwd; }").functions == {"f", "g"}


@each(
    "text",
    [
        "f() { f | f & }; f",
        "function f { echo $(f); }",
        "f() ( f )",
        "f() { time -p f; }",
        "f() { eval f; }",
        "f() { trap f EXIT; }",
        "sh -c 'f() { f; }; f'",
        "f() { g; }; f; g() { eval 'ls; f'; }; g",
        "f() { g() { f; }; g; }; f",
        "f() { x=$(f); }",
    ],
)
def test_a_function_that_may_call_itself_is_not_understood(text):
    assert "may call itself without end" in parse(text).problem


@each(
    "text",
    [
        "f() { ls; }; f | f; g() { f; f; }; g",
        "f() { g; }; g() { ls; }; f",
        "f() { g() { ls; }; g; }; f; g",
        "check() { npm run check; }; check",
        "check() { timeout 60 npm run check; }; check",
        "f() { ls; }; sh -c f",
    ],
)
def test_functions_that_end_are_understood(text):
    assert not parse(text).problem


@each(
    "text",
    [
        "ls",
        "ls -la 'a b' \"c d\" e\\ f",
        "a && b || c; d | e\nf",
        "git commit -m \"$(cat <<'E'\nTitle\n\nBody with `code` and $dollar\nE\n)\"",
        "ls $x",
        'cat "$(ls)"',
        'git commit -m "$x"',
        "ls *.py",
        "make test 2>&1 | tail -40",
        "make > log",
        "python x.py < f",
        "a \\\n  b",
        "python3 - <<'PY'\nprint(1)\nPY",
    ],
)
def test_a_line_of_common_signs_is_plain(text):
    assert parse(text).plain


@pytest.mark.parametrize("text", ["aa - <<'E'\nbb\nE", "aa -x - <<'E'\nbb\nE && ls"])
def test_a_dash_before_a_here_document_is_an_argument(text):
    assert parse(text).commands[0].words[-1].text == "-"


@each(
    "text",
    [
        "ls\n-2>&1",
        "\t-2>&1",
        "ls -<<E\nx\nE",
        "aa -<<'E'\nbb\nE",
        "aa $(bb) - <<'E'\ncc\nE",
        "aa - - <<E\ncc\nE",
        "aa - <<'E' bb\ncc\nE",
        "aa x - <<'E' | ls\nbb\nE",
        "aa <<'E'b c\nbb\nE",
        "git push <<'E' --receive-pack=x\nE",
        "case a in a) ls;; *) pwd esac ;; esac",
        "[ls x ] && ls",
        "[ -n ||ls ] && ls",
        "!'ls' x",
        "{ls\n}",
        "'ls' x f { { ls; pwd; ",
        "ls\\\n-x",
        "l\\\ns",
        "ls x\\\n>/dev/null",
        "ls ]\\bb",
        "ls \\ #; pwd",
        "cat <<EOF\n`pwd`\nEOF",
        "cat <<EOF\n x\n EOF\nEOF",
        "a|a | ls\nrm -rf x\nls > /dev/null",
        "ls x\n\\\nrm x",
        'ls "x $ $(rm x)"a',
        "ls $ x",
        "ls 2>/dev/nullx\\\ny",
    ],
)
def test_a_line_that_parser_and_shell_read_differently_is_not_plain(text):
    assert not parse(text).plain


@each(
    "text",
    ["$x a", '"$(a)" b', "'git status' x", "'' x", "l? x", "~/x", "{a,b} c"],
)
def test_a_line_is_not_plain_when_only_the_run_tells_what_is_run(text):
    assert not parse(text).plain


@each(
    "text",
    ["sh -c ls", 'sh -c "$x"', "eval ls", "eval $x", "trap ls EXIT", "x=1; ls", "X=1 ls"],
)
def test_a_line_that_evaluates_or_sets_something_is_not_plain(text):
    assert not parse(text).plain


@each("sign", ["\u00a0", "\u200b", "\u202e", "\u3000", "\r", "\f", "\0", "\x85"])
def test_a_line_with_a_sign_that_nobody_sees_is_not_plain(sign):
    assert not parse(f"ls{sign} x").plain
    assert not parse(f"ls x{sign}y").plain


def test_an_implicit_cat_is_not_plain():
    assert not parse("echo $(< .env)").plain


def test_a_long_or_deep_text_is_answered_at_once_with_a_problem():
    nested = "ls"
    for _ in range(8):
        nested = f"sh -c {shlex.quote(nested)}"
    deep = ("(" * 5_000, "$(" * 3_000 + ")" * 3_000, "{ " * 100 + "ls; " + "} " * 100)
    hidden = f"{'if true; then ' * 100}rm x{'; fi' * 100}"  # behind commands that are seen
    for text in ("ls " * LINE_BYTES_MAX, nested, *deep, hidden):
        assert parse(text).problem
        assert not parse(text).plain


@each("text", ["", "# nothing", "ls &&", "a ; ; b", "'"])
def test_a_line_that_holds_no_command_or_is_cut_has_a_problem(text):
    assert parse(text).problem


def test_an_honest_line_has_no_problem():
    assert [text for text in HONEST if parse(text).problem] == []
