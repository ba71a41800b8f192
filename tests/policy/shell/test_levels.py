"""The level of a command line, or the question: what slips past narrow rules (B38)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.questions import labelled
from policy.shell.attack_lines import ATTACKS, Attack
from policy.shell.bypasses_of_working import HELD_BYPASSES
from policy.shell.command_lines import BYPASSES, HONEST, HONEST_RULES
from support.each import each
from tiller_daemon.policy.rules import BUILT_IN
from tiller_daemon.policy.shell.levels import (
    LineVerdict,
    git_use,
    judge_line,
    may_run_outside,
    needed_level,
    seems_to_read,
)
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_protocol.settings import Rule

READ_ONLY, BUILD, SESSION = SandboxLevel.READ_ONLY, SandboxLevel.BUILD, SandboxLevel.SESSION

NARROW = ("ls", "ls *", "git status", "git status *", "git push*")
COVERED = {"git push", "git status && git push", 'git "pu"sh', "git pu''sh"}
"""All of the ways around the rules that are none, now that there is one for `git push*`."""

WAYS_AROUND = tuple(
    dict.fromkeys((*BYPASSES, *HELD_BYPASSES, *(attack.text for attack in ATTACKS)))
)
LABELLED = (*labelled("agent_commands.txt"), *labelled("script_lines.txt"))

ALLOWING = st.builds(
    Rule,
    st.sampled_from(["bash", "sandboxed", "unsandboxed", "*"]),
    st.sampled_from(["*", "ls *", "git *", "git push*", "cat *", "make *", "npm test *", "x*"]),
    st.just("allow"),
)
STRICT = st.builds(
    Rule,
    st.sampled_from(["bash", "sandboxed", "*"]),
    st.sampled_from(["*", "ls *", "git *", "git push*", "cat *", "make *", "*| sh*", "x*"]),
    st.sampled_from(["ask", "deny"]),
)
RULES = st.lists(st.one_of(ALLOWING, STRICT), max_size=4)
LINES = st.sampled_from((*WAYS_AROUND, *HONEST, *(one.text for one in LABELLED)))
MOST = st.sampled_from([None, READ_ONLY, BUILD])


def judged(text: str, *rules: Rule, most: SandboxLevel | None = BUILD) -> LineVerdict:
    return judge_line(text, "bash", (*BUILT_IN, *rules), most)


def test_there_are_enough_examples_to_mean_something():
    assert len(WAYS_AROUND) >= 1_000
    assert len(set(HONEST)) >= 100
    assert set(WAYS_AROUND) >= COVERED


@pytest.mark.promise("B38")
def test_a_narrow_rule_lets_no_line_out_that_it_does_not_cover():
    rules = [Rule("bash", pattern, "allow") for pattern in NARROW]
    found = {text: judged(text, *rules) for text in WAYS_AROUND}
    loose = [
        text
        for text, verdict in found.items()
        if verdict.action == "allow" and verdict.level > BUILD
    ]
    assert set(loose) <= COVERED


@pytest.mark.promise("B38")
def test_a_narrow_rule_lets_no_line_leave_that_it_does_not_cover():
    rules = [Rule("unsandboxed", pattern, "allow") for pattern in NARROW]
    loose = {text for text in WAYS_AROUND if may_run_outside(text, rules)}
    assert loose <= {*COVERED, "git status", "ls > /dev/tty"}


@each("attack", ATTACKS)
def test_each_line_of_the_attack_is_held_by_what_it_says(attack: Attack):
    rules = [Rule("bash", pattern, "allow") for pattern in NARROW]
    found = judged(attack.text, *rules)
    if attack.holds == "asks":
        assert found.action == "ask"
    else:
        assert (found.action, found.level) == ("allow", READ_ONLY)


def test_an_honest_command_is_not_asked_about():
    found = [judged(text, *HONEST_RULES) for text in HONEST]
    assert [verdict.reason for verdict in found if verdict.action != "allow"] == []


@given(LINES, st.lists(STRICT, max_size=3), MOST)
@pytest.mark.promise("B38")
def test_without_a_rule_that_allows_no_line_gets_more_than_there_is_unasked(text, rules, most):
    found = judged(text, *rules, most=most)
    if found.action == "allow":
        assert most is not None
        assert found.level <= most


@given(LINES, RULES, MOST)
def test_no_rule_for_the_sandbox_lets_a_line_leave(text, rules, most):
    found = judged(text, *rules, most=most)
    assert found.action != "allow" or found.level <= SESSION
    assert not may_run_outside(text, [rule for rule in rules if rule.permission != "unsandboxed"])


@given(LINES, RULES, STRICT, MOST)
def test_a_stricter_rule_at_the_end_never_loosens(text, rules, more, most):
    before, after = judged(text, *rules, most=most), judged(text, *rules, more, most=most)
    if after.action == "allow":
        assert before.action == "allow"
        assert after.level <= before.level


@given(LINES, RULES, ALLOWING, MOST)
def test_a_rule_that_allows_more_never_causes_a_question(text, rules, more, most):
    if judged(text, *rules, most=most).action == "allow":
        assert judged(text, *rules, more, most=most).action == "allow"


@pytest.mark.parametrize("rules", [(), (Rule("bash", ":*", "allow"),)])
def test_a_fork_bomb_needs_approval_although_each_of_its_commands_is_harmless(rules):
    verdict = judged(":(){ :|:& };: ; sleep 1", *rules)
    assert verdict.action == "ask"
    assert verdict.reason.endswith("its function `:` may call itself without end.")
    assert not seems_to_read(":(){ :|:& };:")


def test_an_unknown_program_is_named_with_the_reason_for_the_question():
    found = judged("make test && ./deploy.sh")
    assert found.reason == "`./deploy.sh` needs approval: it may do more than read and build."


@given(LINES, RULES, MOST)
def test_the_deciding_command_and_rule_are_named(text, rules, most):
    found = judged(text, *rules, most=most)
    assert found.reason.endswith(".")
    assert found.rule is None or found.rule.action == found.action


@each(
    ("text", "needed"),
    [
        ("git status --short && ls | head", READ_ONLY),
        ("sort f > /tmp/sorted", READ_ONLY),
        ("pytest -q 2>&1 | tail -5", BUILD),
        ("make test", BUILD),
        ("make deploy", SESSION),
        ("rm x", SESSION),
        ("ls > f", SESSION),
        ("ls && (", SESSION),
        ("./x", SESSION),
        ("$x", SESSION),
    ],
)
def test_what_a_line_seems_to_do_says_where_it_has_to_run(text, needed):
    assert needed_level(text) == needed
    assert seems_to_read(text) == (needed == READ_ONLY)


@each(
    ("text", "rule", "level"),
    [
        ("git push", "git push *", SESSION),
        ("git push 2>&1 | tail -5", "git push *", SESSION),
        ("cd sub && git push", "git push *", SESSION),
        ("git status", "git *", READ_ONLY),
        ("pytest -q", "pytest *", SESSION),
        ("pytest -q | grep x", "pytest *", BUILD),
        ("CI=1 npm test", "npm *", BUILD),
        ("echo x > f", "*", SESSION),
    ],
)
def test_a_rule_lets_a_line_do_more_when_it_covers_all_of_it(text, rule, level):
    found = judged(text, Rule("bash", rule, "allow"))
    assert (found.action, found.level) == ("allow", level)


@each(
    "text",
    [
        "git push; grep x f",
        "git push | cat f",
        "git push; head -n 5 f",
        "git push; wc -l < f",
        "git push > f",
        "X=1 git push",
        "git push &",
        "for x in a; do git push; done",
        "git push $(cat f)",
        "bash -c 'git push'",
    ],
)
def test_a_rule_for_a_part_of_a_line_is_none_for_the_line(text):
    assert judged(text, Rule("bash", "git push*", "allow")).action == "ask"


@each(
    ("text", "rules", "action"),
    [
        ("pytest", [Rule("sandboxed", "*", "ask")], "ask"),
        ("pytest", [Rule("bash", "pytest *", "ask")], "ask"),
        ("pytest", [Rule("bash", "pytest *", "deny")], "deny"),
        ("pytest", [Rule("sandboxed", "*", "deny")], "deny"),
        ("ls", [Rule("sandboxed", "*", "ask")], "allow"),
        ("rm -rf x", [Rule("sandboxed", "*", "allow")], "allow"),
        ("echo x > f", [Rule("sandboxed", "*", "allow")], "allow"),
        ("echo x > f", [Rule("sandboxed", "echo *", "allow")], "ask"),
        ("rm x > f", [Rule("sandboxed", "*", "allow"), Rule("bash", "rm *", "ask")], "ask"),
        ("rm x; ls", [Rule("sandboxed", "*", "allow"), Rule("bash", "rm *", "deny")], "deny"),
        ("make x", [Rule("sandboxed", "make *", "allow")], "allow"),
    ],
)
def test_rules_say_what_runs_in_the_build_sandbox_without_a_question(text, rules, action):
    found = judged(text, *rules)
    assert found.action == action
    assert action != "allow" or found.level <= BUILD


@each(
    ("line", "use"),
    [
        ("make", ""),
        ("git status", "data"),
        ("git commit -qm x --allow-empty", "data"),
        ("git -c user.name=x commit -m checkout", "data"),
        ("git add a.txt; make test", "data"),
        ("git tag v1 && git push origin v1", "data"),
        ("git --no-pager log -3 main", "data"),
        ("git -C sub checkout main", "work_tree"),
        ("git stash pop", "work_tree"),
        ("git commit -m x && git rebase main", "work_tree"),
        ("git ci", "work_tree"),
    ],
)
def test_only_the_subcommand_of_git_says_whether_it_changes_the_work_tree(line, use):
    assert git_use(line) == use


@pytest.mark.parametrize("most", [None, READ_ONLY])
def test_a_rule_for_the_build_sandbox_is_nothing_where_there_is_none(most):
    assert judged("rm x", Rule("sandboxed", "*", "allow"), most=most).action == "ask"


@each("text", ["ls", "pwd", "echo x", "x=1", "[[ -v 'a[$(rm x)]' ]]", "pytest"])
def test_every_line_asks_where_no_sandbox_works(text):
    assert judged(text, most=None).action == "ask"


def test_what_builds_asks_where_only_reading_can_be_held():
    assert judged("pytest -q", most=READ_ONLY).action == "ask"
    assert judged("ls", most=READ_ONLY).action == "allow"


@each(
    ("text", "pattern", "leaves"),
    [
        ("git push origin main", "git push*", True),
        ("git push && git push x", "git push*", True),
        ("git push --force", "git push*", False),
        ("git push --force", "git push --force", True),
        ("git push --receive-pack='x;'", "git push*", False),
        ("git push $x", "git push*", False),
        ("git push *", "git push*", False),
        ("git push > /tmp/x", "git push*", False),
        ("git push | tail -5", "git push*", False),
        ("cd x && git push", "git push*", False),
        ("echo x > f", "*", True),
    ],
)
def test_a_line_leaves_only_when_a_rule_spells_all_of_it_out(text, pattern, leaves):
    assert may_run_outside(text, [Rule("unsandboxed", pattern, "allow")]) == leaves
    assert not may_run_outside(text, [Rule("*", pattern, "allow")])


def test_a_stricter_rule_keeps_a_line_from_leaving():
    rules = [Rule("unsandboxed", "*", "allow"), Rule("unsandboxed", "git push*", "ask")]
    assert not may_run_outside("git push", rules)
    assert not may_run_outside("eval x", rules)
