"""What calls look like: their arguments, and code blocks that nothing ends."""

from hypothesis import given
from hypothesis import strategies as st

from tiller_client.acp.calls import fenced, fields_of, locations_of, raw_input
from tiller_client.acp.updates import CallLocation
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import ToolCall


@given(text=st.text(st.sampled_from("`\n a"), max_size=30))
def test_nothing_ends_a_code_block(text: str) -> None:
    block = fenced(text)
    fence, _, rest = block.partition("\n")
    assert set(fence) == {"`"}
    assert len(fence) >= 3
    assert rest.endswith(fence)
    assert fence not in rest.removesuffix(fence)


def test_arguments_may_be_anything() -> None:
    def call(arguments: str, name: str = "read") -> ToolCall:
        return ToolCall(ItemId("i"), CallId("c"), name, arguments, "running")

    assert locations_of(call('{"path": "a", "offset": 7}'), "/w") == (CallLocation("/w/a", 7),)
    assert locations_of(call('{"path": "/x/a"}'), "/w") == (CallLocation("/x/a"),)
    for odd in ("", "{", "[]", "7", "null", '{"path": 7}', "[" * 5000):
        assert locations_of(call(odd), "/w") == ()
    assert raw_input(call("{")) == "{"
    patch = "*** Begin Patch\\n*** Add File: a\\n+x\\n*** Update File: b\\n*** Move to: c\\n"
    paths = [one.path for one in locations_of(call(f'{{"patch": "{patch}"}}', "apply_patch"), "/w")]
    assert paths == ["/w/a", "/w/b", "/w/c"]
    assert fields_of(call("", "server_tool"), "/w", terminal=False).kind == "other"
