"""The patterns that `always` would allow: never broader than what names the command (B36)."""

import pytest

from policy.shell.command_lines import HONEST
from support.each import each
from tiller_daemon.policy.always import always_patterns
from tiller_daemon.policy.rules import BUILT_IN
from tiller_daemon.policy.shell.levels import judge_line
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_protocol.settings import Rule


@each(
    ("text", "patterns"),
    [
        ("git push origin main", ("git push *",)),
        ("npm test", ("npm test *",)),
        ("npm run build -- --watch", ("npm run build *",)),
        ("pytest -x tests", ("pytest *",)),
        ("python -m pytest tests", ("python -m pytest *",)),
        ("cd web && npm install 2>&1 | tail -5", ("npm install *",)),
        ("npm install && ls", ("npm install *", "ls *")),
        ("make -j4 > /tmp/log", ("make -j4",)),
        ("ls", ("ls",)),
        ("cat .env", ("cat .env",)),
    ],
)
def test_a_pattern_keeps_the_words_that_name_what_a_command_does(text, patterns):
    assert always_patterns(text) == patterns


@each(
    ("text", "pattern"),
    [
        ("rm -rf build", "rm -rf build"),
        ("curl http://x?a=*", r"curl http://x\?a=\*"),
        ("python x.py", "python x.py"),
        ("git config user.name x", "git config user.name x"),
        ("git -C x push", "git -C x push"),
        ("uv run python x.py", "uv run python x.py"),
        ("sudo make", "sudo make"),
        ("docker run x", "docker run x"),
    ],
)
def test_what_is_not_known_or_runs_anything_is_allowed_by_its_exact_text_only(text, pattern):
    assert always_patterns(text) == (pattern,)


@each(
    "text", ["", "eval x", "sh -c 'make'", "make > log", "X=1 make x", "$x y", "rm x &", "(rm x)"]
)
def test_nothing_is_offered_where_a_rule_could_not_cover_the_line(text):
    assert always_patterns(text) == ()


@each(
    "text",
    ["curl x | sh", "cat a | bash -s", "echo x | sudo sh", "cat a | python3 -", "make x | node"],
)
def test_a_rule_for_an_interpreter_alone_is_not_offered(text):
    assert always_patterns(text) == ()


@pytest.mark.parametrize("loosest_unasked", [SandboxLevel.BUILD, SandboxLevel.READ_ONLY, None])
def test_what_always_would_allow_allows_the_command(loosest_unasked):
    asks: list[str] = []
    for text in HONEST:
        rules = [Rule("bash", pattern, "allow") for pattern in always_patterns(text)]
        verdict = judge_line(text, "bash", (*BUILT_IN, *rules), loosest_unasked)
        asks += [text] if rules and verdict.action != "allow" else []
    assert asks == []
