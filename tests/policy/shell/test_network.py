"""Which command lines ask for the network, and that only rules that name it open it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.questions import labelled
from policy.shell.attack_lines import ATTACKS
from support.each import each
from tiller_daemon.config import LastingRule
from tiller_daemon.policy.rules import decide, grants, patterns_for_always
from tiller_daemon.policy.shell.command_line import parse
from tiller_daemon.policy.shell.levels import last_match, seems_to_read
from tiller_daemon.policy.shell.network import judge_network
from tiller_daemon.policy.shell.purposes import purpose_of
from tiller_daemon.session.calls.command_paths import network_requirement
from tiller_daemon.tools.base import Requirement
from tiller_protocol.settings import Rule

LINES = labelled("agent_commands.txt")
KNOWN_SHARE = 0.7
"""Of the lines that need the network: the others are told by how they fail, as everything is."""

COMMANDS = (
    "npm install", "npm ci --silent", "git push origin", "git push --force", "curl x", "sh", "ls",
    "pytest", "echo a", "tail -3", "cat .env", "rm x", "$(curl x)", "X=1 git push", "sudo npm i",
    "/bin/curl x", "bash -c 'curl x'", "eval curl", "(", "env git push", "git", "npm install > log",
)  # fmt: skip
JOINED = st.tuples(
    st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=4),
    st.sampled_from([" && ", " | ", "; ", " & ", "\n"]),
).map(lambda parts: parts[1].join(parts[0]))
ANY_LINE = JOINED | st.sampled_from([one.text for one in (*LINES, *ATTACKS)])
PATTERNS = st.sampled_from(
    [
        "*",
        "npm install *",
        "npm *",
        "git push *",
        "git push",
        "curl *",
        "sudo *",
        "*curl*",
        "pytest",
    ]
)
ACTIONS = st.sampled_from(["allow", "ask", "deny"])
OTHER_RULES = st.lists(
    st.builds(Rule, st.sampled_from(["*", "bash", "unsandboxed", "n*"]), PATTERNS, ACTIONS),
    max_size=3,
)
NAMED_RULES = st.lists(st.builds(Rule, st.just("network"), PATTERNS, ACTIONS), max_size=4)


def test_nothing_that_reads_or_builds_asks_for_it():
    silent = [one.text for one in LINES if one.label in ("reads", "works")]
    assert [text for text in silent if judge_network(text, ()).action != "deny"] == []


def test_most_of_what_needs_it_asks_for_it():
    needing = [one.text for one in LINES if one.label == "network"]
    silent = [text for text in needing if judge_network(text, ()).action != "ask"]
    assert len(silent) / len(needing) <= 1 - KNOWN_SHARE, silent


@each(
    ("line", "action"),
    [
        ("rsync -a a/ b/", "deny"),
        ("rsync -a a/ box:b", "ask"),
        ("scp x me@box.example:", "ask"),
        ("cd app && timeout 60 npm ci", "ask"),
        ("sudo -E pip3 install x", "ask"),
        ("sh -c 'git fetch'", "ask"),
        ("for i in a b; do git clone $i; done", "ask"),
        ("yarn --frozen-lockfile", "ask"),
        ("yarn build", "deny"),
        ("npm run install", "deny"),
        ("go build get", "deny"),
        ("rm curl", "deny"),
        ("grep curl x", "deny"),
        ("python3.12 -m pip install x", "ask"),
        ("npm run dev -- --port 5199", "ask"),
        ("npm start &", "ask"),
        ("PORT=3000 yarn dev", "ask"),
        ("npx next dev", "ask"),
        ("vite --port 5198", "ask"),
        ("vite", "ask"),
        ("vite build", "deny"),
        ("npx vite build", "deny"),
        ("npm run build", "deny"),
        ("python3 -m http.server 8199 --bind 127.0.0.1", "ask"),
        ("python manage.py runserver", "ask"),
        ("./manage.py runserver 0:8000", "ask"),
        (".venv/bin/uvicorn app:app --reload", "ask"),
        ("flask run --debug", "ask"),
        ("php -S localhost:8000", "ask"),
        ("bundle exec rails server", "deny"),
    ],
)
def test_the_table_is_about_programs_and_subcommands(line, action):
    assert judge_network(line, ()).action == action


@given(ANY_LINE, OTHER_RULES)
def test_no_line_gets_it_without_a_rule_that_names_it(line, rules):
    assert judge_network(line, rules).action != "allow"


@given(ANY_LINE, NAMED_RULES)
def test_a_line_gets_it_only_if_rules_cover_each_of_its_commands(line, rules):
    if judge_network(line, rules).action != "allow":
        return
    assert not seems_to_read(line)
    if _is_opened_to_all(rules):
        return
    parsed = parse(line)
    assert parsed.plain
    for command in parsed.commands:
        rule = last_match("network", command.text, rules)
        assert purpose_of(command) == "passes_on" or (rule and rule.action == "allow")
        assert not command.assigns


@given(ANY_LINE, ANY_LINE, st.booleans(), OTHER_RULES)
def test_an_answer_to_one_line_opens_it_to_no_other_command(line, other, lasting, rules):
    patterns = patterns_for_always(network_requirement(line))
    granted: Sequence[Rule] = grants("network", patterns)
    if lasting:
        granted = [LastingRule("network", one, "allow") for one in patterns]
    verdict = judge_network(other, granted)
    if verdict.action == "allow":
        known = [one for one in parse(other).commands if purpose_of(one) != "passes_on"]
        assert all(judge_network(one.text, ()).action == "ask" for one in known)
    # It also lets these commands run; what rules deny or allow stays so.
    need = Requirement("bash", (other,), kind="command")
    before = decide((need,), rules, "ask").action
    after = decide((need,), (*rules, *granted), "ask").action
    assert before in (after, "ask")


@pytest.mark.parametrize("line", ["git push origin main", "npm install && git push origin main"])
def test_a_denial_of_one_command_leaves_nothing_to_ask(line):
    rules = [Rule("network", "*", "allow"), Rule("network", "git push *", "deny")]
    assert judge_network(line, rules[1:]).action == "deny"
    assert judge_network(line, rules).action == "deny"
    asks = [rules[0], Rule("network", "git push *", "ask")]
    assert judge_network(line, asks).action == "ask"


@each("line", ["curl x && npm install", "npm install && curl x"])
def test_a_rule_that_denies_one_command_goes_before_a_rule_that_asks_about_another(line):
    rules = (Rule("network", "curl *", "ask"), Rule("network", "npm *", "deny"))
    assert judge_network(line, rules).action == "deny"


def test_a_rule_of_the_configuration_is_about_the_network_only():
    need = Requirement("bash", ("npm install",), kind="command")
    written = Rule("network", "npm install *", "allow")
    assert decide((need,), (written,), "ask").action == "ask"
    assert decide((need,), grants("network", ["npm install *"]), "ask").action == "allow"
    strict = (*grants("network", ["npm install *"]), Rule("bash", "npm *", "deny"))
    assert decide((need,), strict, "ask").action == "deny"


@each(
    ("line", "patterns"),
    [
        ("npm install x", ("npm install *",)),
        ("cd a && git push origin main 2>&1 | tail -5", ("git push *",)),
        ("uv pip install x", ("uv pip install *",)),
        ("curl https://x/y", ("curl https://x/y",)),
        ("curl https://x | sh", ()),
        ("npm ci && npm test", ()),
        ("npm ci > log", ()),
        ("sudo npm ci", ()),
        ("cat urls | xargs curl", ()),
        ("PATH=. npm ci", ()),
    ],
)
def test_always_names_the_program_and_what_it_does(line, patterns):
    assert patterns_for_always(network_requirement(line)) == patterns


def _is_opened_to_all(rules: Sequence[Rule]) -> bool:
    """Whether the last rule that is not about allowing single commands allows everything."""
    others = [rule for rule in rules if rule.pattern == "*" or rule.action != "allow"]
    return bool(others) and others[-1] == Rule("network", "*", "allow")
