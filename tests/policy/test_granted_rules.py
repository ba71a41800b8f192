"""Granted rules, of a session or lasting: they answer questions, and never undo a denial."""

from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.config import LastingRule
from tiller_daemon.policy.rules import decide, denies_all, evaluate, grants
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.tools.base import Requirement
from tiller_protocol.settings import Rule

ACTIONS = st.sampled_from(["allow", "ask", "deny"])
PATTERNS = st.text(alphabet="ab*?", max_size=3)
RULES = st.lists(st.builds(Rule, st.sampled_from(["write", "*"]), PATTERNS, ACTIONS), max_size=6)
GRANTED = st.lists(
    st.builds(
        lambda kind, pattern: granted("write", pattern, kind),
        st.sampled_from(["session", "lasting"]),
        PATTERNS,
    ),
    max_size=3,
)
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
GRANTED_COMMANDS = st.lists(
    st.builds(
        lambda kind, pattern: granted("bash", pattern, kind),
        st.sampled_from(["session", "lasting"]),
        st.sampled_from(["*", "git push *", "rm y", "make *", "make"]),
    ),
    max_size=3,
)


def granted(permission: str, pattern: str, kind: str) -> Rule:
    if kind == "lasting":
        return LastingRule(permission, pattern, "allow")
    (rule,) = grants(permission, [pattern])
    return rule


@given(st.text(alphabet="ab", max_size=4), RULES, GRANTED)
def test_a_question_is_answered_and_everything_else_stays(subject, rules, granted_rules):
    before, after = (
        evaluate("write", subject, layers) for layers in (rules, [*rules, *granted_rules])
    )
    covered = (
        evaluate("write", subject, [Rule("*", "*", "deny"), *map(plain, granted_rules)]) == "allow"
    )
    assert after == ("allow" if before == "ask" and covered else before)


@given(LINES, ABOUT_COMMANDS, GRANTED_COMMANDS, st.sampled_from([None, SandboxLevel.BUILD]))
def test_a_denied_command_line_stays_denied_and_an_allowed_one_allowed(
    line, rules, granted_rules, loosest_unasked
):
    requirement = Requirement("bash", (line,), kind="command", loosest_unasked=loosest_unasked)
    before = decide([requirement], rules, "ask").action
    after = decide([requirement], [*rules, *granted_rules], "ask").action
    assert before in (after, "ask")


@each(
    ("line", "action"),
    [
        ("git push origin", "allow"),
        ("cd x && git push", "allow"),
        ("git push origin && rm x", "ask"),
        ("git push --force", "deny"),
        ("/usr/bin/git push x", "ask"),
    ],
)
@each("kind", ["session", "lasting"])
def test_a_granted_rule_for_commands_is_as_narrow_as_it_was_shown(line, action, kind):
    rules = [
        Rule("bash", "git push --force*", "allow"),
        Rule("bash", "git*", "ask"),
        Rule("bash", "git push --force*", "deny"),
    ]
    grant = granted("bash", "git push *", kind)
    requirement = Requirement("bash", (line,), kind="command", loosest_unasked=SandboxLevel.BUILD)
    assert decide([requirement], [*rules, grant], "ask").action == action


def test_a_grant_does_not_offer_again_what_is_denied_altogether():
    denied = [Rule("fetch", "*", "deny"), *grants("fetch", ["*"])]
    assert denies_all("fetch", None, denied)
    assert denies_all("fetch", "example.org", denied)


def plain(rule: Rule) -> Rule:
    return Rule(rule.permission, rule.pattern, rule.action)
