"""Conditions that make an open question needless."""

import pytest

from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.session.calls.permission import Permission
from tiller_daemon.session.requests import IsAllowed, Reply
from tiller_daemon.tools.base import Requirement
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import Request, ToolCall
from tiller_protocol.settings import Rule

CALL = ToolCall(ItemId("i"), CallId("c"), "bash", "{}", "pending")


class Asked:
    """A permission whose user says `once`; `rules` may grow while the question is open."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.is_allowed: IsAllowed = lambda: False
        self.permission = Permission("/", "ask", lambda: tuple(self.rules), self._ask, lambda: "r")

    async def _ask(self, request: Request, is_allowed: IsAllowed) -> Reply:
        self.is_allowed = is_allowed
        return Reply("once")


@pytest.mark.parametrize("first", ["external_directory", "write"])
async def test_b36_a_grant_settles_a_call_only_when_it_covers_all_that_the_call_needs(first: str):
    asked = Asked()
    needs = (
        Requirement("external_directory", ("/x",), ("/x",), "path"),
        Requirement("write", ("y",), ("y",), "path"),
    )
    allowed = await asked.permission.obtain(CALL, "approval", needs)
    assert isinstance(allowed, tuple)
    assert {one.by for one in allowed} == {"user"}
    grants = [Rule("external_directory", "/x", "allow"), Rule("write", "y", "allow")]
    grants.sort(key=lambda rule: rule.permission != first)
    asked.rules.append(grants[0])
    assert not asked.is_allowed()
    asked.rules.append(grants[1])
    assert asked.is_allowed()


async def test_b36_a_build_that_wants_more_is_settled_by_a_rule_and_not_by_where_builds_run():
    asked = Asked()
    need = Requirement("bash", ("make",), kind="command", loosest_unasked=Enclosure.BUILD)
    assert asked.permission.verdict((need,)).action == "allow"
    await asked.permission.ask_about(CALL, need)
    assert not asked.is_allowed()
    asked.rules.append(Rule("bash", "make", "allow"))
    assert asked.is_allowed()


async def test_only_a_rule_by_its_own_name_settles_a_question_about_the_outside():
    asked = Asked()
    need = Requirement("unsandboxed", ("make",), kind="command")
    await asked.permission.offer(CALL, need)
    asked.rules.append(Rule("*", "*", "allow"))
    assert not asked.is_allowed()
    asked.rules.append(Rule("unsandboxed", "make", "allow"))
    assert asked.is_allowed()
