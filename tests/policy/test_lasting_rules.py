"""Lasting rules: they turn questions into consent, and no denial into anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.config import LastingRule
from tiller_daemon.policy.rules import decide, evaluate
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.tools.base import Requirement
from tiller_protocol.settings import Rule

ACTIONS = st.sampled_from(["allow", "ask", "deny"])
PATTERNS = st.text(alphabet="ab*?", max_size=3)
RULES = st.lists(st.builds(Rule, st.sampled_from(["write", "*"]), PATTERNS, ACTIONS), max_size=6)
LASTING = st.lists(st.builds(LastingRule, st.just("write"), PATTERNS, st.just("allow")), max_size=3)
WORDS = st.sampled_from(["git push x", "git push", "rm y", "ls", "make", "$(x)", "a=1 rm y", "("])
LINES = st.lists(WORDS, min_size=1, max_size=3).map(" && ".join)
ABOUT_COMMANDS = st.lists(
    st.builds(
        Rule,
        st.sampled_from(["bash", "*"]),
        st.sampled_from(["*", "git push *", "git *", "rm *", "make", "ls*"]),
        ACTIONS,
    ),
    max_size=4,
)
LASTING_COMMANDS = st.lists(
    st.builds(
        LastingRule,
        st.just("bash"),
        st.sampled_from(["*", "git push *", "rm y", "make *", "make"]),
        st.just("allow"),
    ),
    max_size=3,
)


@given(st.text(alphabet="ab", max_size=4), RULES, LASTING)
def test_a_question_is_answered_and_everything_else_stays(subject, rules, lasting):
    before, after = (evaluate("write", subject, layers) for layers in (rules, [*rules, *lasting]))
    covered = evaluate("write", subject, [Rule("*", "*", "deny"), *map(plain, lasting)]) == "allow"
    assert after == ("allow" if before == "ask" and covered else before)


@given(LINES, ABOUT_COMMANDS, LASTING_COMMANDS, st.sampled_from([None, Enclosure.BUILD]))
def test_a_denied_command_line_stays_denied_and_an_allowed_one_allowed(
    line, rules, lasting, most_unasked
):
    requirement = Requirement("bash", (line,), kind="command", most_unasked=most_unasked)
    before = decide([requirement], rules, "ask").action
    after = decide([requirement], [*rules, *lasting], "ask").action
    assert before in (after, "ask")


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("git push origin", "allow"),
        ("cd x && git push", "allow"),
        ("git push origin && rm x", "ask"),
        ("git push --force", "deny"),
        ("/usr/bin/git push x", "ask"),
    ],
)
def test_a_lasting_rule_for_commands_is_as_narrow_as_one_of_the_session(line, action):
    rules = [
        Rule("bash", "git push --force*", "allow"),
        Rule("bash", "git*", "ask"),
        Rule("bash", "git push --force*", "deny"),
    ]
    lasting = LastingRule("bash", "git push *", "allow")
    requirement = Requirement("bash", (line,), kind="command", most_unasked=Enclosure.BUILD)
    assert decide([requirement], [*rules, lasting], "ask").action == action


def plain(rule: LastingRule) -> Rule:
    return Rule(rule.permission, rule.pattern, rule.action)
