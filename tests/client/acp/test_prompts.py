"""An editor's prompt as input for the daemon."""

from support.each import each
from tiller_client.acp.prompts import read_prompt
from tiller_client.acp.schema import ResourceBlock, ResourceContents, ResourceLink, TextBlock


def link(path: str) -> ResourceLink:
    return ResourceLink(f"file://{path}", "name")


@each(
    ("blocks", "text", "files"),
    [
        (
            [TextBlock("Compare"), link("/w/app.py"), link("/w/test_app.py"), TextBlock("please")],
            "Compare app.py test_app.py please",
            ("/w/app.py", "/w/test_app.py"),
        ),
        ([TextBlock("/review"), link("/w/app.py")], "/review app.py", ("/w/app.py",)),
        ([TextBlock("see "), link("/w/a"), TextBlock("\nnow")], "see a\nnow", ("/w/a",)),
        ([TextBlock("one"), TextBlock(""), TextBlock("two")], "one two", ()),
        ([TextBlock("one\n"), TextBlock("two")], "one\ntwo", ()),
        ([TextBlock("why"), link("/w/a%20b.py#L3-5")], "why a b.py#L3-5", ("/w/a b.py",)),
        ([link("/etc/x#L3"), TextBlock("?")], "/etc/x#L3 ?", ("/etc/x",)),
        (
            [TextBlock("at"), ResourceLink("https://x.invalid/a#b", "page")],
            "at page (https://x.invalid/a#b)",
            (),
        ),
        (
            [TextBlock("in"), ResourceBlock(ResourceContents("file:///w/a#L1:9", text="x"))],
            "in a#L1:9\n\nfile:///w/a#L1:9 as it is in the editor:\n```\nx\n```",
            (),
        ),
    ],
)
def test_blocks_are_separate_words(blocks, text: str, files: tuple[str, ...]) -> None:
    given = read_prompt(blocks, "/w")
    assert (given.text, given.files) == (text, files)
