"""`AGENTS.md` and its like: which are read, in which order, how much of them."""

import os

import pytest

from tiller_daemon.workspace.instructions import (
    FILE_BYTES_MAX,
    TOTAL_BYTES_MAX,
    read_instructions,
    read_nested_instructions,
)


@pytest.fixture
def home(tmp_path):
    made = tmp_path / "home"
    (made / "config").mkdir(parents=True)
    return made


def is_open(path):
    """Whether a file may be read unasked."""
    return not path.name.endswith(".env") and "closed" not in path.parts


def found(workspace, repository, home):
    return read_instructions(workspace, repository, home, home / "config", is_open)


def texts(workspace, repository, home):
    return [one.text for one in found(workspace, repository, home) if not one.problem]


def write(directory, text, name="AGENTS.md"):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text)


def test_the_nearest_is_last_and_the_users_own_is_first(home):
    repository = home / "code" / "project"
    workspace = repository / "a" / "b"
    workspace.mkdir(parents=True)
    for directory in (home, home / "code", repository, repository / "a", workspace):
        write(directory, f"in {directory.name}")
    write(home / "config", "mine")
    assert texts(workspace, repository, home) == ["mine", "in project", "in a", "in b"]


def test_without_a_repository_the_way_up_ends_at_home(home):
    workspace = home / "code"
    write(workspace, "near")
    write(home, "at home")
    write(home.parent, "above home")
    assert texts(workspace, None, home) == ["at home", "near"]


def test_outside_of_home_and_repository_only_the_workspace_counts(home):
    workspace = home.parent / "elsewhere" / "here"
    write(workspace, "here")
    write(workspace.parent, "above")
    assert texts(workspace, None, home) == ["here"]


def test_claude_md_counts_where_there_is_no_agents_md(home):
    workspace = home / "w"
    write(workspace, "claude", "CLAUDE.md")
    assert texts(workspace, None, home) == ["claude"]
    write(workspace, "agents")
    assert texts(workspace, None, home) == ["agents"]


def test_a_long_file_is_cut_with_a_sentence_that_says_so(home):
    workspace = home / "w"
    write(workspace, "x" * (FILE_BYTES_MAX + 1))
    (text,) = texts(workspace, None, home)
    assert text.startswith("x" * FILE_BYTES_MAX + "\n(Cut here: ")
    assert f"{FILE_BYTES_MAX + 1:,} bytes" in text
    write(workspace, "x" * FILE_BYTES_MAX)
    assert texts(workspace, None, home) == ["x" * FILE_BYTES_MAX]


def test_many_long_files_stay_below_the_limit_of_all_and_the_nearest_are_whole(home):
    repository = home / "0"
    workspace = repository / "1" / "2" / "3"
    for directory in (workspace, *workspace.parents[:3]):
        write(directory, directory.name * (FILE_BYTES_MAX - 1))
    found = texts(workspace, repository, home)
    assert found[-1] == "3" * (FILE_BYTES_MAX - 1)
    assert found[-2] == "2" * (FILE_BYTES_MAX - 1)
    assert all("(Cut here: " in text for text in found[:-2])
    assert sum(len(text.partition("\n(Cut")[0]) for text in found) <= TOTAL_BYTES_MAX


def test_bytes_that_are_not_utf8_are_replaced(home):
    workspace = home / "w"
    workspace.mkdir()
    (workspace / "AGENTS.md").write_bytes(b"\xef\xbb\xbfa\xff\r\nb")
    assert texts(workspace, None, home) == ["a�\nb"]


@pytest.mark.promise("B60")
def test_a_link_out_of_the_project_is_refused_and_a_fifo_is_passed_over(home):
    workspace = home / "w"
    workspace.mkdir()
    (home / "secret").write_text("secret")
    for target in (home / "secret", "../secret", "/dev/zero", "/proc/self/environ"):
        (workspace / "AGENTS.md").symlink_to(target)
        for repository in (None, workspace):
            (refused,) = found(workspace, repository, home)
            assert refused == (f"{workspace}/AGENTS.md", "", f"a link leads out of {workspace}")
        (workspace / "AGENTS.md").unlink()
    (workspace / "AGENTS.md").symlink_to("AGENTS.md")
    assert found(workspace, None, home) == ()
    (workspace / "AGENTS.md").unlink()
    os.mkfifo(workspace / "AGENTS.md")
    write(workspace, "instead", "CLAUDE.md")
    assert texts(workspace, None, home) == ["instead"]


def test_a_link_within_the_repository_is_followed_and_so_is_any_of_the_users_own(home):
    repository = home / "r"
    write(repository, "one text", "CLAUDE.md")
    workspace = repository / "w"
    workspace.mkdir()
    (workspace / "AGENTS.md").symlink_to("../CLAUDE.md")
    write(home / "dotfiles", "mine")
    (home / "config" / "AGENTS.md").symlink_to(home / "dotfiles" / "AGENTS.md")
    assert texts(workspace, repository, home) == ["mine", "one text", "one text"]


@pytest.mark.promise("B60")
def test_a_file_that_may_not_be_read_unasked_is_refused_and_the_next_name_counts(home):
    repository = home / "r"
    workspace = repository / "w"
    write(workspace, "KEY=1", "prod.env")
    write(repository / "closed", "KEY=2", "AGENTS.md")
    (workspace / "AGENTS.md").symlink_to("prod.env")
    (repository / "AGENTS.md").symlink_to("closed/AGENTS.md")
    write(workspace, "instead", "CLAUDE.md")
    assert texts(workspace, repository, home) == ["instead"]
    assert [(one.path, one.text, one.problem) for one in found(workspace, repository, home)] == [
        (
            f"{repository}/AGENTS.md",
            "",
            f"reading {repository}/closed/AGENTS.md needs approval",
        ),
        (f"{workspace}/CLAUDE.md", "instead", ""),
        (f"{workspace}/AGENTS.md", "", f"reading {workspace}/prod.env needs approval"),
    ]


def test_the_users_own_file_is_the_users_to_choose(home):
    workspace = home / "w"
    workspace.mkdir()
    write(home / "closed", "mine")
    (home / "config" / "AGENTS.md").symlink_to(home / "closed" / "AGENTS.md")
    assert texts(workspace, None, home) == ["mine"]


def test_an_empty_file_says_nothing(home):
    workspace = home / "w"
    write(workspace, " \n")
    assert texts(workspace, None, home) == []


def nested(workspace, directory):
    found = read_nested_instructions(workspace, directory, is_open)
    return [one.text or one.problem for one in found]


def test_below_the_workspace_each_directory_on_the_way_counts_and_the_nearest_is_last(home):
    workspace = home / "w"
    for directory in (workspace, workspace / "a", workspace / "a" / "b", workspace / "c"):
        write(directory, f"in {directory.name}")
    write(workspace / "a" / "b" / "deep", "claude", "CLAUDE.md")
    assert nested(workspace, workspace) == []
    assert nested(workspace, workspace / "a") == ["in a"]
    assert nested(workspace, workspace / "a" / "b" / "deep") == ["in a", "in b", "claude"]
    assert nested(workspace, home) == []


def test_the_instructions_of_other_peoples_packages_are_not_the_projects(home):
    workspace = home / "w"
    for name in ("node_modules", ".venv", "site-packages", ".git"):
        write(workspace / name / "package", "obey")
        assert nested(workspace, workspace / name / "package") == []


@pytest.mark.promise("B60")
def test_nested_instructions_do_not_lead_out_of_the_workspace(home):
    workspace = home / "w"
    (workspace / "a").mkdir(parents=True)
    (home / "secret").write_text("secret")
    (workspace / "a" / "AGENTS.md").symlink_to(home / "secret")
    assert nested(workspace, workspace / "a") == [f"a link leads out of {workspace}"]


@pytest.mark.promise("B60")
def test_nested_instructions_may_not_be_what_may_not_be_read_unasked(home):
    workspace = home / "w"
    write(workspace / "a", "KEY=1", ".env")
    (workspace / "a" / "AGENTS.md").symlink_to(".env")
    write(workspace / "closed", "KEY=2")
    write(workspace, "KEY=3", "prod.env")
    (workspace / "b").mkdir()
    (workspace / "b" / "AGENTS.md").symlink_to("../prod.env")
    for name in ("a", "closed", "b"):
        (problem,) = nested(workspace, workspace / name)
        assert problem.endswith("needs approval")


def test_nested_instructions_keep_the_bounds_of_all(home):
    directory = home / "w"
    for name in "123":
        directory /= name
        write(directory, name * FILE_BYTES_MAX)
    found = nested(home / "w", directory)
    assert found[1:] == ["2" * FILE_BYTES_MAX, "3" * FILE_BYTES_MAX]
    assert sum(len(text.partition("(Cut")[0]) for text in found) <= TOTAL_BYTES_MAX + 1
