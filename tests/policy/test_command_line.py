"""Command lines (B38): what slips past `ls` and `git status`, and what is asked in vain."""

import shlex

import pytest

from policy.command_lines import BYPASSES, HONEST, HONEST_RULES
from tiller_daemon.policy.rules import decide
from tiller_daemon.policy.shell_commands import always_patterns, judge_parts, only_reads
from tiller_daemon.tools.base import Need
from tiller_protocol.settings import Rule

NARROW = [
    Rule("bash", pattern, "allow") for pattern in ("ls", "ls *", "git status", "git status *")
]


def verdict(text, rules):
    return decide([Need("bash", (text,), kind="command")], rules, "ask")


def test_there_are_enough_examples_to_mean_something():
    assert len(set(BYPASSES)) >= 500
    assert len(set(HONEST)) >= 100


@pytest.mark.parametrize("text", BYPASSES)
def test_b38_nothing_is_allowed_beyond_the_rule(text):
    assert verdict(text, NARROW).action == "ask"
    assert not only_reads(text)


@pytest.mark.parametrize("text", HONEST)
def test_an_honest_command_is_not_asked_about(text):
    assert verdict(text, HONEST_RULES).action == "allow", verdict(text, HONEST_RULES).reason


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ls && rm -rf x", ("ls", "rm -rf x")),
        ("ls; pwd | wc -l", ("ls", "pwd", "wc -l")),
        ("echo $(date +%s) `whoami`", ("date +%s", "whoami", "echo $(date +%s) `whoami`")),
        ("diff <(ls a) <(ls b)", ("ls a", "ls b", "diff <(ls a) <(ls b)")),
        ("sudo rm x", ("sudo rm x", "rm x")),
        ("timeout 5 nice -n 3 make", ("make", "timeout 5 nice -n 3 make", "nice -n 3 make")),
        ("sh -c 'make && ls'", ("make", "ls", "sh -c make && ls")),
        ("find . -exec rm {} +", ("find . -exec rm {} +", "rm {}")),
        ("git ls-files | xargs rm", ("git ls-files", "rm", "xargs rm")),
        ("'l's \"a b\"\nmake", ("ls a b", "make")),
    ],
)
def test_a_compound_command_is_taken_apart(text, parts):
    assert judge_parts(text).commands == parts


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ("git push origin main", ("git push *",)),
        ("npm test", ("npm test *",)),
        ("npm run build -- --watch", ("npm run build *",)),
        ("pytest -x tests", ("pytest *",)),
        ("python -m pytest tests", ("python -m pytest *",)),
        ("cd web && npm install && ls", ("npm install *",)),
        ("rm -rf build", ("rm -rf build",)),
        ("curl http://x?a=*", (r"curl http://x\?a=\*",)),
        ("python x.py", ("python x.py",)),
        ("git config user.name x", ("git config user.name x",)),
        ("uv run python x.py", ("uv run python x.py",)),
        ("sudo make", ("sudo make", "make")),
        ("cat .env", ("cat .env",)),
        ("eval x", ()),
        ("make > log", ()),
        ("", ()),
    ],
)
def test_always_is_never_broader_than_what_names_the_command(text, patterns):
    assert always_patterns(text) == patterns


@pytest.mark.parametrize("text", HONEST)
def test_what_always_would_allow_allows_the_command(text):
    rules = [Rule("bash", pattern, "allow") for pattern in always_patterns(text)]
    if rules:
        assert verdict(text, rules).action == "allow"


def test_a_long_or_deep_text_is_judged_at_once_and_not_certain():
    nested = "ls"
    for _ in range(8):
        nested = f"sh -c {shlex.quote(nested)}"
    for text in ("ls " * 20_000, "(" * 5_000, "$(" * 3_000 + ")" * 3_000, nested):
        assert not judge_parts(text).certain


def test_a_command_under_nohup_may_write_its_file():
    assert not only_reads("nohup ls")


@pytest.mark.parametrize("text", ["cd sub && git log", "pushd sub; git status"])
def test_git_elsewhere_does_not_only_read_as_its_configuration_may_run_something(text):
    assert not only_reads(text)


@pytest.mark.parametrize(
    "text",
    [
        "ls\n-2>&1",
        "ls -<<E\nx\nE",
        "case a in a) ls;; *) pwd esac ;; esac",
        "[ls x ] && ls",
        "[ -n ||ls ] && ls",
        "!'ls' x",
        "{ls\n}",
        "'ls' x f { { ls; pwd; ",
        "ls\\\n-x",
        "ls x\\\n>/dev/null",
        "ls ]\\bb",
        "command - ls",
        "ls \\ #; pwd",
        "cat <<EOF\n`pwd`\nEOF",
        "cat <<EOF\n x\n EOF\nEOF",
    ],
)
def test_what_parser_and_shell_read_differently_is_not_certain(text):
    assert not judge_parts(text).certain


@pytest.mark.parametrize(
    "text", ["git $x", "git status $x", "find . $x", "rg foo $x", "make $(ls)"]
)
def test_a_word_that_only_the_run_will_tell_is_not_certain(text):
    assert not judge_parts(text).certain


@pytest.mark.parametrize("text", ["ls $x", 'cat "$(ls)"', 'git commit -m "$x"', "echo ${x} $?"])
def test_a_word_that_can_make_a_command_do_no_more_is_certain(text):
    assert judge_parts(text).certain
