"""`tiller rules`: what is listed, and which rule a word means."""

import json

import pytest

from support.event_bodies import Tiller
from support.fake_daemon import FakeDaemon
from tiller_protocol.ops import RuleRevoke, RulesList
from tiller_protocol.places import Places
from tiller_protocol.settings import RuleSummary

SESSION = "01K0AAAAAAAAAAAAAAAAAASES1"
RULES = (
    RuleSummary("aa11", "bash", "make *", workspace="/home/me/a", by="tiller exec"),
    RuleSummary("aa22", "write", "*", workspace="/home/me/a"),
    RuleSummary("bb33", "bash", "rm \x1b[2J\nx", workspace="/home/me/b"),
    RuleSummary("cc44", "read", "*.env", "deny", session_id=SESSION),
)


@pytest.fixture
def daemon(places: Places):
    with FakeDaemon(places.runtime) as daemon:
        daemon.rules = RULES
        yield daemon


def test_rules_are_listed_by_place_and_their_patterns_verbatim(daemon: FakeDaemon, tiller: Tiller):
    status, out, _ = tiller("rules")
    assert status == 0
    assert out.splitlines() == [
        "/home/me/a",
        "  aa11  bash  make *  by tiller exec",
        "  aa22  write  *",
        "/home/me/b",
        "  bb33  bash  rm ␛[2J␊x",
        f"session {SESSION}",
        "  cc44  read  *.env  deny",
    ]


def test_without_rules_it_says_how_one_is_made(daemon: FakeDaemon, tiller: Tiller):
    daemon.rules = ()
    assert tiller("rules", "list") == (
        0,
        "there are no rules; to add one, answer a request with always_here\n",
        "",
    )


def test_rules_can_be_asked_for_by_directory_and_by_session(
    daemon: FakeDaemon, tiller: Tiller, tmp_path
):
    tiller("rules", "-C", str(tmp_path))
    tiller("rules", "--session", SESSION)
    asked = [op for op in daemon.seen.values() if isinstance(op, RulesList)]
    assert asked == [RulesList(str(tmp_path.resolve())), RulesList(session_id=SESSION)]


def test_rules_are_revoked_by_the_beginnings_of_their_ids(daemon: FakeDaemon, tiller: Tiller):
    status, out, _ = tiller("rules", "revoke", "AA1", "cc44", "--session", SESSION)
    assert status == 0
    assert (
        out == f"revoked bash  make * (/home/me/a)\nrevoked read  *.env  deny (session {SESSION})\n"
    )
    revoked = [op for op in daemon.seen.values() if isinstance(op, RuleRevoke)]
    assert revoked == [RuleRevoke("aa11"), RuleRevoke("cc44", SESSION)]
    status, out, _ = tiller("rules", "revoke", "--session", SESSION, "aa22")
    assert (status, out) == (0, "revoked write  * (/home/me/a)\n")
    status, out, _ = tiller("rules", "revoke", "bb", "--json")
    assert json.loads(out)["id"] == "bb33"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("revoke", "aa"), "'aa' matches 2 rules"),
        (("revoke", "aa11", "zz"), "'zz' is not the id of a rule"),
        (("revoke", ""), "the value of RULE is empty"),
        (("revoke",), "give the ids of the rules to revoke"),
        (("list", "aa11"), "to revoke rules: tiller rules revoke"),
    ],
)
def test_a_word_that_means_no_single_rule_revokes_nothing(
    daemon: FakeDaemon, tiller: Tiller, words: tuple[str, ...], complaint: str
):
    status, _, err = tiller("rules", *words)
    assert (status, complaint in err) == (2, True), err
    assert not any(isinstance(op, RuleRevoke) for op in daemon.seen.values())
