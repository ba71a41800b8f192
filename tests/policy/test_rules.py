"""Rules: the last match wins, denials win over several needs, `approve` settles what is open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from support.granting import granted_by_always
from tiller_daemon.policy import globs
from tiller_daemon.policy.rules import (
    BUILT_IN,
    decide,
    denies_all,
    evaluate,
    grants,
    patterns_for_always,
)
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.tools.base import Requirement
from tiller_protocol.settings import (
    Action,
    Rule,
)

ACTIONS = st.sampled_from(["allow", "ask", "deny"])
PERMISSIONS = st.sampled_from(["bash", "read", "write"])
PATTERNS = st.text(alphabet="ab*?", max_size=3)
RULES = st.lists(
    st.builds(Rule, st.sampled_from(["bash", "read", "write", "*", "?ead"]), PATTERNS, ACTIONS),
    max_size=8,
)
STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


def command(text: str, loosest_unasked: SandboxLevel | None = SandboxLevel.BUILD) -> Requirement:
    return Requirement("bash", (text,), kind="command", loosest_unasked=loosest_unasked)


def bash(pattern: str, action: Action) -> Rule:
    return Rule("bash", pattern, action)


@given(PERMISSIONS, st.text(alphabet="ab", max_size=4), RULES)
def test_the_last_match_wins_and_no_match_asks(permission, subject, rules):
    said = "ask"
    for rule in rules:
        if globs.matches(rule.permission, permission) and globs.matches(rule.pattern, subject):
            said = rule.action
    assert evaluate(permission, subject, rules) == said


@given(
    st.lists(
        st.builds(Requirement, PERMISSIONS, st.tuples(st.text(alphabet="ab", max_size=3))),
        max_size=4,
    ),
    RULES,
)
def test_the_strictest_of_several_needs_decides(requirements, rules):
    layers = (*BUILT_IN, *rules)
    actions = [evaluate(need.permission, need.subjects[0], layers) for need in requirements]
    expected = max(actions, key=STRICTNESS.__getitem__, default="allow")
    assert decide(requirements, rules, "ask").action == expected
    decided = {"allow": "allow", "deny": "deny"}
    assert decide(requirements, rules, "always").action == decided.get(expected, "allow")
    assert decide(requirements, rules, "never").action == decided.get(expected, "deny")


@given(st.text(alphabet="ab *?", min_size=1, max_size=6), RULES)
def test_a_rule_more_at_the_end_that_denies_never_loosens(subject, rules):
    before = decide([Requirement("read", (subject,))], rules, "ask").action
    after = decide(
        [Requirement("read", (subject,))], [*rules, Rule("read", "*", "deny")], "ask"
    ).action
    assert STRICTNESS[after] >= STRICTNESS[before]


@each(
    ("permission", "subject", "action"),
    [
        ("read", "src/main.py", "allow"),
        ("read", ".env", "ask"),
        ("read", "deploy/.env.production", "ask"),
        ("read", ".env.example", "allow"),
        ("read", "/home/u/.ssh/id_rsa", "ask"),
        ("read", "certs/server.pem", "ask"),
        ("write", "src/main.py", "ask"),
        ("external_directory", "/etc", "ask"),
        ("doom_loop", "read", "ask"),
        ("teleport", "mars", "ask"),
    ],
)
def test_the_built_in_rules_ask_about_secrets_and_changes(permission, subject, action):
    assert decide([Requirement(permission, (subject,))], [], "ask").action == action


@pytest.mark.promise("B39")
def test_a_denial_names_the_rule_and_asks_nobody():
    rules = [bash("*", "allow"), bash("git push*", "deny")]
    for approve in ("ask", "always", "never"):
        verdict = decide([command("git status && git push origin")], rules, approve)
        assert verdict.action == "deny"
        assert verdict.rule == rules[1]
        assert "git push*" in verdict.reason


def test_approve_never_says_that_nobody_is_asked():
    verdict = decide([command("./x")], [], "never")
    assert verdict.action == "deny"
    assert "`approve` is `never`" in verdict.reason


@pytest.mark.promise("B36")
def test_always_allows_other_requests_that_now_match():
    first, second, other = (command(text) for text in ("npm test", "npm test -- -k x", "npm run x"))
    rules = granted_by_always([first])
    assert rules == (Rule("bash", "npm test *", "allow", granted=True),)
    assert decide([second], rules, "ask").action == "allow"
    assert decide([other], rules, "ask").action == "ask"


@pytest.mark.promise("B36")
def test_always_for_paths_takes_the_patterns_of_the_tool():
    need = Requirement("write", ("src/a.py",), always=("src/*",), kind="path")
    assert patterns_for_always(need) == ("src/*",)
    rules = granted_by_always([need])
    assert (
        decide([Requirement("write", ("src/b.py",), kind="path")], rules, "ask").action == "allow"
    )


@each("spelling", ["rm -rf x", "/bin/rm -rf x", "r''m -rf x", "rm  -rf  x"])
@each(
    "around",
    [
        *("{}", "ls; {}", "X=1 {}", "$({})", "if ls; then {}; fi", "f() {{ {}; }}; f", "{} > f"),
        *("sudo {}", "sudo -u root {}", "timeout 5 {}", "env -i A=b {}", "nice -n 5 {}", "time {}"),
        *("ls | xargs -0 -n1 {}", "find . -exec {} \\;", "exec {}", "command {}", "nohup {} &"),
        *('sh -c "{}"', '/bin/bash -xec "ls; {}"', 'timeout 5 sh -c "{}"', 'eval "{}"'),
    ],
)
def test_a_denial_finds_the_command_in_any_dress(spelling, around):
    rules = [bash("*", "allow"), bash("rm *", "deny")]
    assert decide([command(around.format(spelling))], rules, "always").action == "deny"


@pytest.mark.parametrize("loosest_unasked", [None, SandboxLevel.READ_ONLY, SandboxLevel.BUILD])
def test_a_denial_or_question_counts_whatever_can_be_sandboxed(loosest_unasked):
    for action in ("ask", "deny"):
        need = command("ls | cat f", loosest_unasked)
        assert decide([need], [bash("cat *", action)], "ask").action == action


def test_a_rule_that_speaks_of_a_pipe_sees_the_whole():
    rules = [bash("*", "allow"), bash("*| sh*", "deny")]
    assert decide([command("curl x | sh")], rules, "ask").action == "deny"
    assert decide([command("curl x")], rules, "ask").action == "allow"


@pytest.mark.promise("B38")
def test_only_a_rule_for_everything_allows_what_cannot_be_judged():
    assert decide([command("eval x")], [bash("eval *", "allow")], "ask").action == "ask"
    assert decide([command("eval x")], [bash("*", "allow")], "ask").action == "allow"
    stricter = [bash("*", "allow"), bash("git push*", "ask")]
    assert decide([command("eval x")], stricter, "ask").action == "ask"


def test_a_specific_rule_is_not_upset_by_a_pipe():
    rules = [bash("git *", "ask"), bash("git status", "allow")]
    assert decide([command("git status | head -5")], rules, "ask").action == "allow"


def test_a_reading_command_now_asks_where_nothing_can_hold_it_to_reading():
    assert decide([command("cat README.md")], [], "ask").action == "allow"
    assert decide([command("cat README.md", None)], [], "ask").action == "ask"
    assert (
        decide([command("cat README.md", None)], [bash("cat *", "allow")], "ask").action == "allow"
    )


def test_a_reading_command_is_no_longer_asked_about_for_its_words_as_it_is_given_an_sandbox():
    """What it names that is hidden there is asked about in `session.calls.command_paths`."""
    for text in ("cat .env", "head -1 < .env", "git show HEAD:.env", "ls .env"):
        verdict = decide([command(text)], [Rule("read", "*", "deny")], "ask")
        assert (verdict.action, verdict.level) == ("allow", SandboxLevel.READ_ONLY), text


def test_an_allowed_command_says_where_it_runs():
    rules = [bash("git push*", "allow")]
    for text, level in (
        ("ls", SandboxLevel.READ_ONLY),
        ("pytest", SandboxLevel.BUILD),
        ("git push", SandboxLevel.SESSION),
    ):
        assert decide([command(text)], rules, "ask").level == level


def test_consent_that_nobody_gave_is_for_the_session_and_never_for_outside():
    verdict = decide([command("rm x")], [], "always")
    assert (verdict.action, verdict.level) == ("allow", SandboxLevel.SESSION)


@given(PERMISSIONS, RULES, st.text(alphabet="ab", max_size=4))
def test_what_is_denied_for_everything_is_denied_for_each_thing(permission, rules, subject):
    if denies_all(permission, None, rules):
        assert evaluate(permission, subject, (*BUILT_IN, *rules)) == "deny"
    verdict = evaluate(permission, subject, (*BUILT_IN, *rules))
    assert denies_all(permission, subject, rules) == (verdict == "deny")


@given(st.lists(st.builds(Rule, PERMISSIONS, st.sampled_from(["*", "**"]), ACTIONS), max_size=6))
def test_without_exceptions_the_last_rule_says_whether_everything_is_denied(rules):
    about = [rule for rule in rules if rule.permission == "bash"]
    assert denies_all("bash", None, rules) == bool(about and about[-1].action == "deny")


@each(
    ("path", "action"),
    [
        (".npmrc.disabled", "ask"),
        (".npmrc.disabled-0123456789abcdef", "ask"),
        (".docker.disabled/config.json", "ask"),
        ("sub/.netrc.disabled", "ask"),
        (".vscode.disabled/tasks.json", "allow"),
        ("ci.yml.disabled", "allow"),
    ],
)
def test_what_was_put_aside_is_protected_by_the_name_that_it_had(path, action):
    assert evaluate("read", path, BUILT_IN) == action
    assert evaluate("read", path, (*BUILT_IN, *grants("read", (path,)))) == "allow"
