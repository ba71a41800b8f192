"""Which files may be read without a question."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.policy.readable import Readable
from tiller_daemon.policy.rules import decide
from tiller_daemon.tools.base import Requirement
from tiller_protocol.settings import Rule

PROTECTED = (
    ".env", "a/.env", "prod.env", ".env.local", "/home/me/.env", "id_rsa", "keys/id_ed25519.pub",
    "server.pem", "x.key", ".netrc", "home/.aws/credentials", ".kube/config", ".gnupg/secring",
)  # fmt: skip

PATHS = st.lists(
    st.sampled_from(("a", ".env", "x.env", "id_rsa", "keys", "a.pem", "secrets", "é")), min_size=1
).map("/".join)
PATTERNS = st.lists(
    st.sampled_from(("*", "?", "a", "/", ".env", "secrets", "keys", "\\*")), min_size=1, max_size=5
).map("".join)
RULES = st.lists(
    st.builds(
        Rule,
        permission=st.sampled_from(("read", "*", "write", "r*")),
        pattern=PATTERNS,
        action=st.sampled_from(("allow", "ask", "deny")),
    ),
    max_size=4,
)


@pytest.mark.parametrize("path", PROTECTED)
def test_what_is_secret_by_custom_is_not(path):
    assert not Readable(())(path)


@pytest.mark.parametrize("path", [".env.example", "env.py", "src/main.py", "AGENTS.md"])
def test_what_is_not_is(path):
    assert Readable(())(path)


@given(RULES, PATHS)
def test_it_says_what_the_tool_read_would_be_told(rules, path):
    need = Requirement("read", (path,), kind="path")
    assert Readable(rules)(path) == (decide((need,), rules, "ask").action == "allow")


@given(RULES, PATHS)
def test_a_mark_is_in_a_name_of_every_file_that_is_protected(rules, path):
    readable = Readable(rules)
    if not readable(path):
        assert any(mark in name for mark in readable.path_fragments for name in path.split("/"))
