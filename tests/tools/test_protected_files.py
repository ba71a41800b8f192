"""What is in files whose reading asks comes out by no search: no line, nor that one fits."""

import pytest

from support.pictures import picture
from tiller_daemon.tools.search import grep as grep_module
from tiller_daemon.tools.search import ripgrep as search
from tiller_protocol.settings import Rule

ONE = "(1 protected file was not searched, because reading such files needs approval. To search one"
NO_LINE = "No line matches. Binary files and files that git ignores are left out."


@pytest.fixture
def tree(bench):
    bench.put(".env", "needle=1\n")
    bench.put("id_rsa", "needle\n")
    bench.put("deep/er/prod.env", "needle\n")
    bench.put("deep/er/a.py", "needle\n")
    return bench


async def test_grep_leaves_out_what_is_protected_and_says_how_many(tree):
    output = (await tree.call("grep", pattern="needle")).output
    assert output.startswith("deep/er/a.py\n     1\tneedle\n(3 protected files were not searched")
    output = (await tree.call("grep", pattern="needle", path="deep")).output
    assert output.startswith(f"deep/er/a.py\n     1\tneedle\n{ONE}")


@pytest.mark.parametrize("include", [".e*", "*", ".env", "{.env,id_rsa}", "**/.env", "[.]env"])
async def test_grep_leaves_it_out_however_it_is_included(tree, include):
    output = (await tree.call("grep", pattern="needle", include=include)).output
    assert "needle=1" not in output
    assert "id_rsa" not in output
    assert "not searched" in output


async def test_whether_something_in_it_fits_is_not_told(tree):
    tree.put("a.py", "hay\n")
    fits = (await tree.call("grep", pattern="needle=1")).output
    fits_not = (await tree.call("grep", pattern="needle=2")).output
    assert fits == fits_not
    assert fits.startswith(f"{NO_LINE}\n(3 protected files")


async def test_nor_is_it_told_of_a_binary_file_when_something_else_failed(bench, tmp_path):
    bench.put("store.p12", b"needle\n" + b"x\n" * 100_000 + b"\0\n")
    program = tmp_path / "rg"
    program.write_text(f'#!/bin/sh\n{search.find_ripgrep()[0]} "$@"\nexit 2\n')
    program.chmod(0o755)
    outputs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "find_ripgrep", lambda: [str(program)])
        for pattern in ("needle", "needles"):
            include = {"include": "*.p12"}
            outputs.append((await bench.call("grep", pattern=pattern, **include)).output)
    assert outputs[0] == outputs[1]


async def test_lines_of_it_take_no_place_of_others(tree, monkeypatch):
    monkeypatch.setattr(grep_module, "MATCHES_FOUND_MAX", 20)
    tree.put("a/.env", "needle\n" * 1000)
    tree.put("z.py", "needle\n")
    output = (await tree.call("grep", pattern="needle")).output
    assert "deep/er/a.py" in output
    assert "z.py" in output
    assert "at least" not in output


async def test_one_that_is_named_is_a_question_as_for_read_and_then_searched(tree):
    (tree.workspace / "link").symlink_to(".env")
    for path in (".env", "link", "deep/../.env"):
        (need,) = tree.requirements("grep", pattern="needle", path=path)
        assert (need.permission, need.subjects) == ("read", (".env",))
        output = (await tree.call("grep", pattern="needle", path=path)).output
        assert output == ".env\n     1\tneedle=1"


async def test_the_rules_of_the_turn_count(tree):
    tree.put("secrets/a.txt", "needle\n")
    tree.rules = (Rule("read", "secrets/*", "deny"), Rule("read", "*.env", "allow"))
    for arguments in ({"path": "secrets"}, {"include": "secrets/*"}, {}):
        output = (await tree.call("grep", pattern="needle", **arguments)).output
        assert "secrets/a.txt" not in output
        assert "protected file" in output
    assert ".env\n     1\tneedle=1\n" in output
    tree.rules = (Rule("read", "*", "ask"),)
    output = (await tree.call("grep", pattern="needle")).output
    assert output.startswith(f"{NO_LINE}\n(5 protected files")


async def test_a_project_can_not_bring_it_in(tree):
    tree.put(".gitignore", "*\n!*/\n!.env\n!.gitignore\n")
    tree.put(".rgignore", "!.env\n")
    output = (await tree.call("grep", pattern="needle=1")).output
    assert output.startswith(f"{NO_LINE}\n{ONE}")


async def test_outside_of_the_workspace_it_is_protected_too(tree, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/.env").write_text("needle\n")
    (tmp_path / "out/a").write_text("needle\n")
    output = (await tree.call("grep", pattern="needle", path=str(tmp_path / "out"))).output
    assert output.startswith(f"{tmp_path}/out/a\n     1\tneedle\n{ONE}")


async def test_glob_and_ls_show_names_and_no_more(tree):
    found = (await tree.call("glob", pattern="*.env")).output
    assert sorted(found.split("\n")) == [".env", "deep/er/prod.env"]
    assert ".env" in (await tree.call("ls")).output


async def test_read_asks_about_an_image_where_its_path_leads(bench):
    bench.put("id_rsa.png", picture())
    (bench.workspace / "shot.png").symlink_to("id_rsa.png")
    for path in ("id_rsa.png", "shot.png"):
        (need,) = bench.requirements("read", path=path)
        assert need.subjects == ("id_rsa.png",)


async def test_what_is_long_wide_or_marked_is_found_as_before(tree):
    text = "needle é" + "x" * 1000 + "\n"
    tree.put("long.txt", "hay\n" * 3000 + text)
    tree.put("wide.txt", text.encode("utf-16"))
    tree.put("marked.txt", b"\xef\xbb\xbf" + text.encode())
    tree.put("no-end.txt", "hay\nneedle")
    tree.put("huge.txt", "x" * 200_000 + "needle\nneedle 2\n")
    output = (await tree.call("grep", pattern="needle", include="*.txt")).output
    assert output.count("needle éxxx") == 3
    assert "\n  3001\tneedle é" in output
    assert "no-end.txt\n     2\tneedle\n" in output
    assert "huge.txt\n     1\txxx" in output
    assert "\n     2\tneedle 2\n" in output


async def test_a_line_that_is_not_in_the_file_as_it_is_now_was_not_found(bench, tmp_path):
    """A search that is led elsewhere says what is there; nothing of it is shown or counted."""
    bench.put("a.py", "mine\nneedle\n")
    said = {
        b"./a.py": (b"1:secret", b"2:secret", b"2:needle", b"3:needle", b"9:secret"),
        b"./b.py": (b"1:secret",),
        b"./../a.py": (b"1:secret",),
        b"./link/a.py": (b"1:mine",),
    }
    (bench.workspace / "link").symlink_to(".")
    records = [b"%s\0%s\n" % (path, one) for path, lines in said.items() for one in lines]
    (tmp_path / "said").write_bytes(b"".join(records))
    (tmp_path / "listed").write_bytes(b"./b.py\0./a.py\0./link/a.py\0./../workspace/a.py\0")
    program = tmp_path / "rg"
    which = 'case "$*" in *--files*) f=listed;; *) f=said;; esac'
    program.write_text(f"#!/bin/sh\n{which}\ncat {tmp_path}/$f\n")
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "find_ripgrep", lambda: [str(program)])
        output = (await bench.call("grep", pattern="x")).output
        assert output == "a.py\n     2\tneedle"
        assert (await bench.call("glob", pattern="**")).output == "a.py"


@pytest.mark.parametrize(("path", "swapped"), [("a.py", "a.py"), ("d", "d"), (".", "d")])
@pytest.mark.promise("B58")
async def test_what_becomes_a_link_when_the_search_begins_is_not_followed(
    bench, tmp_path, path, swapped
):
    bench.put("a.py", "needle\n")
    bench.put("d/deep/a.py", "needle\n")
    (tmp_path / "out/deep").mkdir(parents=True)
    for name in ("out/deep/a.py", "out/a.py"):
        (tmp_path / name).write_text("needle secret\n")
    there = bench.workspace / swapped
    target = tmp_path / "out" / ("a.py" if swapped == "a.py" else "")
    swap = f"[ -L {there} ] || {{ mv {there} {there}.away; ln -s {target} {there}; }}"
    program = tmp_path / "rg"
    program.write_text(f'#!/bin/sh\n{swap}\nexec {search.find_ripgrep()[0]} --follow "$@"\n')
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "find_ripgrep", lambda: [str(program)])
        output = (await bench.call("grep", pattern="needle", path=path)).output
    assert there.is_symlink()
    assert "secret" not in output
    if path == "d":
        assert output == "d/deep/a.py\n     1\tneedle"
