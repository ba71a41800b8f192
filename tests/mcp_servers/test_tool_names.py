"""Names of tools: valid for every provider, unique, and unchanged if possible."""

import re

from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.mcp.tool_names import NAME_CHARS_MAX, name_tools

servers = st.text(st.sampled_from("abz09_-"), min_size=1, max_size=32)
tools = st.text(min_size=0, max_size=200) | st.text(st.sampled_from("aA._/"), max_size=4)


def test_a_plain_name_stays_as_it_is():
    assert name_tools([("git", "git_log"), ("git", "show-all")]) == [
        "mcp__git__git_log",
        "mcp__git__show-all",
    ]


@given(st.lists(st.tuples(servers, tools), unique=True, max_size=30))
def test_names_are_valid_and_unique_whatever_servers_call_their_tools(pairs):
    names = name_tools(pairs)
    assert len({name.casefold() for name in names}) == len(pairs)
    assert all(re.fullmatch(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS_MAX}}}", name) for name in names)


def test_servers_with_similar_names_are_distinguished():
    first, second = name_tools([("a__b", "c"), ("a", "b__c")])
    assert first == "mcp__a__b__c"
    assert second.startswith("mcp__a__b__c_")


def test_a_name_does_not_change_when_another_server_comes_behind_it():
    long = ("s", "t" * 100)
    assert name_tools([long, ("z", "x")])[0] == name_tools([long])[0]
