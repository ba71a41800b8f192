"""Every verdict that allows a call has reasons, which name the rules that decided."""

from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.policy.rules import BUILT_IN, decide
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.session.calls.reasons import REASONS_MAX, reasons
from tiller_daemon.session.requests import Reply
from tiller_daemon.tools.base import Requirement
from tiller_protocol.settings import Rule

LINES = ("ls", "make test", "./x", "ls | ./x", "cat a && make", "echo x > y", "git push")
paths = st.sampled_from(("a", "b.env", "c/d"))
rules = st.lists(
    st.builds(
        Rule,
        st.sampled_from(("read", "write", "bash", "sandboxed", "*")),
        st.sampled_from(("*", "a", "./x*", "make*", "git *")),
        st.sampled_from(("allow", "ask", "deny")),
    ),
    max_size=4,
)
requirements = st.lists(
    st.one_of(
        st.builds(
            lambda name, path: Requirement(name, (path,), (path,), "path"),
            st.sampled_from(("read", "write")),
            paths,
        ),
        st.builds(
            lambda line, most: Requirement("bash", (line,), kind="command", loosest_unasked=most),
            st.sampled_from(LINES),
            st.sampled_from((None, SandboxLevel.READ_ONLY, SandboxLevel.BUILD)),
        ),
    ),
    max_size=4,
)


@given(requirements, rules, st.sampled_from(("ask", "always")), st.booleans())
def test_every_permission_of_an_allowed_call_has_a_reason_that_holds(
    needs, given_rules, approve, granted
):
    verdict = decide(needs, given_rules, approve)
    if verdict.action != "allow":
        return
    found = reasons(verdict, given_rules if granted else ())
    assert {one.permission for one in found} == {one.permission for one in needs}
    known = {*BUILT_IN, *given_rules}
    for one in found:
        assert one.reason.endswith(".")
        assert (one.rule is not None) == (one.by in ("rule", "grant"))
        assert one.rule is None or (one.rule in known and one.rule.action == "allow")
        assert one.by != "approve" or approve == "always"
        assert one.by != "user"
        assert one.by != "grant" or granted


@given(requirements, rules)
def test_what_the_user_was_asked_about_is_by_the_user_and_nothing_else_is(needs, given_rules):
    verdict = decide(needs, given_rules, "ask")
    if verdict.action != "ask":
        return
    found = reasons(verdict, (), Reply("once", by="tests"))
    asked = {part.permission for part in verdict.parts if part.action == "ask"}
    assert {one.permission for one in found if one.by == "user"} == asked


def test_many_files_of_one_rule_are_one_reason_and_the_number_is_bounded():
    many = tuple(Requirement("read", (f"f{n}",), (), "path") for n in range(100))
    (one,) = reasons(decide(many, (), "ask"), ())
    assert one.subject == "f0"
    each = [Rule("write", f"f{n}", "allow") for n in range(100)]
    needs = tuple(Requirement("write", (f"f{n}",), (), "path") for n in range(100))
    assert len(reasons(decide(needs, each, "ask"), ())) == REASONS_MAX
