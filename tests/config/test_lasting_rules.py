"""The file of lasting rules: what is kept is there after a restart, and nothing else is."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiller_daemon.config import LastingRule, LastingRules, LastingRulesError, StoredRule, rule_id
from tiller_daemon.config.lasting_rules import RULES_MAX

PLACES = ("/a", "/b")
STORED = st.builds(
    StoredRule, st.sampled_from(["bash", "read"]), st.sampled_from(["x", "y *", "ü\n"])
)
ACTIONS = st.lists(st.tuples(st.booleans(), st.sampled_from(PLACES), STORED), max_size=12)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(actions=ACTIONS)
def test_rules_are_kept_and_removed_as_in_a_list_for_each_place(tmp_path_factory, actions):
    file = tmp_path_factory.mktemp("r") / "config" / "rules.json"
    rules = LastingRules(file)
    expected: dict[str, list[StoredRule]] = {place: [] for place in PLACES}
    for adds, place, rule in actions:
        there = expected[place]
        if adds:
            rules.add(place, [rule])
            there += [] if rule in there else [rule]
        else:
            removed = rules.remove(rule_id(place, rule.permission, rule.pattern))
            assert removed == (rule in there)
            there[:] = [one for one in there if one != rule]
        for known in (rules, LastingRules(file)):
            for one in PLACES:
                assert known.of(one) == tuple(
                    LastingRule(kept.permission, kept.pattern, "allow") for kept in expected[one]
                )


def test_the_file_is_private_and_a_link_to_it_stays_a_link(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rules.json").symlink_to("elsewhere/rules.json")
    LastingRules(tmp_path / "rules.json").add("/a", [StoredRule("bash", "make *")])
    assert (tmp_path / "rules.json").is_symlink()
    kept = tmp_path / "elsewhere" / "rules.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in kept.parent.iterdir()] == ["rules.json"]


def test_a_workspace_is_known_by_the_place_that_a_link_leads_to(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    rules = LastingRules(tmp_path / "rules.json")
    rules.add(tmp_path / "link", [StoredRule("bash", "make *")])
    assert len(rules.of(tmp_path / "real")) == len(rules.of(tmp_path / "link")) == 1
    assert rules.of(tmp_path) == ()


def test_an_edit_of_the_file_counts_at_once(tmp_path: Path):
    file = tmp_path / "rules.json"
    rules = LastingRules(file)
    assert rules.of("/a") == ()
    file.write_text('{"workspaces": {"/a": [{"permission": "bash", "pattern": "make *"}]}}')
    assert rules.of("/a") == (LastingRule("bash", "make *", "allow"),)
    file.write_text('{"workspaces": {"/a": [{"permission": "bash", "action": "deny"}]}}')
    assert rules.of("/a") == ()
    assert rules.problem().startswith(f"{file} can't be used: ")
    file.unlink()
    assert (rules.of("/a"), rules.problem()) == ((), "")


def test_there_is_a_limit_and_nothing_changes_beyond_it(tmp_path: Path):
    file = tmp_path / "rules.json"
    rules = LastingRules(file)
    rules.add("/a", [StoredRule("bash", str(number)) for number in range(RULES_MAX)])
    before = file.read_bytes()
    with pytest.raises(LastingRulesError, match="Revoke some"):
        rules.add("/b", [StoredRule("bash", "x")])
    assert file.read_bytes() == before
    more = msgspec.json.decode(before)
    more["workspaces"]["/b"] = [{"permission": "bash", "pattern": "x"}]
    file.write_bytes(msgspec.json.encode(more))
    assert "more than 1,000 rules" in rules.problem()


def test_a_file_that_others_can_write_does_not_count(tmp_path: Path):
    rules = LastingRules(tmp_path / "rules.json")
    rules.add("/a", [StoredRule("bash", "make *")])
    (tmp_path / "rules.json").chmod(0o666)
    assert rules.of("/a") == ()
    assert "every user of this machine can write to it" in rules.problem()


def test_a_file_that_can_not_be_read_is_a_problem_and_not_an_empty_one(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        rules = LastingRules(path)
        assert rules.problem()
        with pytest.raises(LastingRulesError):
            rules.add("/a", [StoredRule("bash", "x")])


def test_a_worktree_has_the_rules_of_its_checkout_that_do_not_weaken_the_sandbox(tmp_path: Path):
    tree, checkout = str(tmp_path / "tree"), str(tmp_path / "checkout")
    rules = LastingRules(tmp_path / "rules.json", {tree: checkout, checkout: checkout}.__getitem__)
    for permission in ("bash", "unsandboxed", "protected_path"):
        for place in (tree, checkout):
            rules.add(place, [StoredRule(permission, place)])
    found = [(one.permission, one.pattern) for one in rules.of(tree)]
    assert found == [
        *(("bash", tree), ("unsandboxed", tree), ("protected_path", tree), ("bash", checkout)),
    ]
