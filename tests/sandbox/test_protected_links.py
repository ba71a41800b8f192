"""A file that git, an editor or an agent executes is protected at the end of links too."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final

import pytest

from support.jail import Jail, jail_of, sandbox_for
from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.confiner import Confiner
from tiller_daemon.sandbox.enclosure import Enclosure

LINKED: Final[dict[str, tuple[Mapping[str, str], str]]] = {
    "a hook": ({".git/hooks/pre-commit": "../../scripts/hook"}, "scripts/hook"),
    "all hooks": ({".git/hooks": "../scripts"}, "scripts/pre-push"),
    "hooks in a directory of a directory": ({".git/hooks": "../a/b"}, "a/b/pre-commit"),
    "a hook that is missing": ({".git/hooks/pre-commit": "../../hook"}, "hook"),
    "a hook whose directory is missing": ({".git/hooks/pre-commit": "../../a/hook"}, "a/hook"),
    "git's configuration": ({".git/config": "../gitconfig"}, "gitconfig"),
    "tasks of an editor": ({".vscode/tasks.json": "../conf/tasks.json"}, "conf/tasks.json"),
    "a link in a directory at the end of a link": (
        {".git/hooks": "../a", "a/pre-commit": "../scripts/hook"},
        "scripts/hook",
    ),
    "an absolute link": ({".vscode/tasks.json": "{work}/conf/tasks.json"}, "conf/tasks.json"),
}
"""Links in places where no command can write, and a path that other programs execute."""

REPLACEABLE: Final[dict[str, tuple[Mapping[str, str], str]]] = {
    "the directory of an agent": ({".claude": "agents"}, "agents/settings.json"),
    "a file with servers": ({".mcp.json": "conf/mcp.json"}, "conf/mcp.json"),
    "a link to a link": (
        {".vscode/tasks.json": "../now.json", "now.json": "conf/tasks.json"},
        "conf/tasks.json",
    ),
    "a link through a link": (
        {".vscode/tasks.json": "../now/tasks.json", "now": "conf"},
        "conf/tasks.json",
    ),
}
"""Links of which a command could replace one, and where they lead."""

PLANT: Final = """
mkdir -p $(dirname {0}); echo planted >>{0}
d=$(echo {0} | cut -d/ -f1); mv $d moved && mkdir -p $(dirname {0}) && echo planted >{0}
"""


@pytest.fixture
def jail() -> Generator[Jail]:
    with jail_of() as made:
        yield made


def link(workspace: Path, links: Mapping[str, str], executed: str) -> None:
    """Make the links and the executed file, unless the file's name says that it is missing."""
    for name in ("scripts", "a/b", "conf", "agents"):
        if executed.startswith(f"{name}/"):
            (workspace / name).mkdir(parents=True, exist_ok=True)
            (workspace / executed).write_text("old")
    if executed == "gitconfig":
        (workspace / ".git/config").rename(workspace / executed)
    for name, target in links.items():
        path = workspace / name
        path.parent.mkdir(exist_ok=True)
        if path.is_dir():
            path.rename(path.with_name("unused"))
        path.unlink(missing_ok=True)
        path.symlink_to(target.format(work=workspace))


def content(path: Path) -> str | None:
    """Return the content of a file; None if it does not exist."""
    return path.read_text() if path.exists() else None


def confiner(jail: Jail) -> Confiner:
    found = sandbox_for("bubblewrap", [], jail.root)
    return Confiner(lambda: found, jail.home, {}, private=(jail.runtime,))


@pytest.mark.parametrize("enclosure", [Enclosure.BUILD, Enclosure.SESSION])
@pytest.mark.parametrize("name", LINKED)
async def test_b60_no_command_writes_what_is_executed_at_the_end_of_a_link(
    jail: Jail, name: str, enclosure: Enclosure
) -> None:
    links, executed = LINKED[name]
    link(jail.workspace, links, executed)
    before = content(jail.workspace / executed)
    confined = confiner(jail).confined(enclosure, SandboxPolicy(), jail.workspace, jail.spill)
    await jail.run(confined, PLANT.format(executed))
    after = jail.workspace / executed
    assert (content(after) if after.is_file() else None) == before
    assert confiner(jail).loosest_unasked(SandboxPolicy(), jail.workspace) is Enclosure.BUILD


@pytest.mark.parametrize("name", LINKED)
async def test_the_same_command_writes_it_where_nothing_links_to_it(jail: Jail, name: str) -> None:
    _, executed = LINKED[name]
    confined = confiner(jail).confined(Enclosure.BUILD, SandboxPolicy(), jail.workspace, jail.spill)
    await jail.run(confined, PLANT.format(executed))
    assert "planted" in (jail.workspace / executed).read_text()


@pytest.mark.parametrize("name", REPLACEABLE)
async def test_where_a_command_could_replace_a_link_only_reading_is_unasked(
    jail: Jail, name: str
) -> None:
    links, executed = REPLACEABLE[name]
    link(jail.workspace, links, executed)
    made = confiner(jail)
    assert made.loosest_unasked(SandboxPolicy(), jail.workspace) is Enclosure.READ_ONLY
    confined = made.confined(Enclosure.SESSION, SandboxPolicy(), jail.workspace, jail.spill)
    await jail.run(confined, f"echo planted >>{executed}")
    assert content(jail.workspace / executed) == "old"


def test_a_link_to_the_whole_workspace_protects_nothing_and_only_reading_is_unasked(
    jail: Jail,
) -> None:
    link(jail.workspace, {".vscode/all": "../.."}, "")
    made = confiner(jail)
    assert made.loosest_unasked(SandboxPolicy(), jail.workspace) is Enclosure.READ_ONLY


def test_a_link_that_leads_out_of_all_writable_directories_changes_nothing(jail: Jail) -> None:
    link(jail.workspace, {".vscode/tasks.json": str(jail.home / "other/notes")}, "")
    made = confiner(jail)
    assert made.loosest_unasked(SandboxPolicy(), jail.workspace) is Enclosure.BUILD


@pytest.mark.parametrize("name", [*LINKED, *REPLACEABLE])
def test_it_is_known_of_a_path_that_links_make_it_executed(jail: Jail, name: str) -> None:
    links, executed = {**LINKED, **REPLACEABLE}[name]
    link(jail.workspace, links, executed)
    made = confiner(jail)
    policy = SandboxPolicy()
    assert made.is_executed(policy, jail.workspace, jail.workspace / executed)
    assert not made.is_executed(policy, jail.workspace, jail.workspace / "file")


def test_a_new_link_is_noticed(jail: Jail) -> None:
    made = confiner(jail)
    executed = jail.workspace / "scripts/hook"
    assert not made.is_executed(SandboxPolicy(), jail.workspace, executed)
    link(jail.workspace, {".git/hooks/pre-commit": "../../scripts/hook"}, "scripts/hook")
    assert made.is_executed(SandboxPolicy(), jail.workspace, executed)
