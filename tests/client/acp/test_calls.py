"""What calls look like: diffs that can be put together again, code blocks that nothing ends."""

from hypothesis import given
from hypothesis import strategies as st

from tiller_client.acp.calls import diffs_of, fenced, fields_of, locations_of, raw_input
from tiller_client.acp.updates import CallLocation
from tiller_daemon.tools.editing.diff import unified_diff
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import ToolCall

TEXTS = st.lists(
    st.sampled_from(
        ["a", "b", "", "--- a", "+++ b", "-- x", "@@ -1 +1 @@", "\\ No", "\r", "é\u2028"]
    ),
    max_size=12,
).flatmap(lambda lines: st.sampled_from(["\n".join(lines), "\n".join([*lines, ""])]))


@given(before=TEXTS, after=TEXTS)
def test_the_hunks_of_a_diff_lead_from_one_text_to_the_other(before: str, after: str) -> None:
    diff = unified_diff(before, after, "dir/file")
    text = after
    for path, line, hunk in reversed(diffs_of(diff, "/w")):
        assert path == hunk.path == "/w/dir/file"
        lines = _lines(text)
        # A hunk without lines afterwards is numbered by the line before it.
        begin = (line or 1) - 1 if hunk.new_text else (line or 0)
        end = begin + len(_lines(hunk.new_text))
        assert "".join(lines[begin:end]) == hunk.new_text
        text = "".join([*lines[:begin], hunk.old_text or "", *lines[end:]])
    assert text == before


def test_new_and_removed_files_and_several_of_them() -> None:
    diff = unified_diff(None, "new\n", "a") + unified_diff("old\n", None, "/out/b")
    [(_, _, made), (path, _, removed)] = diffs_of(diff, "/w")
    assert (made.path, made.old_text, made.new_text) == ("/w/a", None, "new\n")
    assert (path, removed.old_text, removed.new_text) == ("/out/b", "old\n", "")


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


def _lines(text: str) -> list[str]:
    """The lines with their newlines; only a newline ends one."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])
