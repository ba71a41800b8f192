"""What a sandbox must enforce: profiles, bubblewrap's options, the profile for macOS.

That it is enforced is shown in `test_levels`.
"""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
from msgspec import structs

from support.daemon import gone, marked
from support.each import each
from support.jail import jail_of
from support.sandboxes import eyes_of_ordinary_user
from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.base import (
    CommandSandbox,
    SandboxProfile,
    SandboxSearchResult,
    strictest,
)
from tiller_daemon.sandbox.bubblewrap import Bubblewrap, options
from tiller_daemon.sandbox.detect import bubblewrap_program, find_sandbox, try_out
from tiller_daemon.sandbox.known_paths import is_protected
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.sandboxes import Sandboxes
from tiller_daemon.sandbox.seatbelt import Seatbelt, rules_for
from tiller_daemon.sandbox_setup import configuration_places
from tiller_protocol.settings import SandboxMode

NO_PLACE = Path("/nonexistent")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path.resolve() / "home"
    for name in (".ssh", ".config/gh", "work", "state/spill/s1", "cache"):
        (home / name).mkdir(parents=True)
    (home / ".netrc").write_text("")
    subprocess.run(["git", "init", "-q", home / "work"], check=True)
    return home


def sandboxes(home: Path, **fields: object) -> Sandboxes:
    found = SandboxSearchResult(Seatbelt("/usr/bin/sandbox-exec"))
    given = {"private": (home / "state",), **fields}
    return Sandboxes(lambda: found, home, {}, **given)


def profile(
    home: Path,
    policy: SandboxPolicy,
    level: SandboxLevel = SandboxLevel.BUILD,
    **fields: object,
) -> SandboxProfile:
    shown = home / "state" / "spill" / "s1"
    found = sandboxes(home, **fields).make(level, policy, home / "work", shown)
    assert found
    return found.profile


def test_secrets_and_the_daemons_own_are_hidden_but_for_what_is_shown(home: Path) -> None:
    found = profile(home, SandboxPolicy())
    names = {home / name for name in (".ssh", ".config/gh", ".netrc", "state")}
    assert names <= set(found.hidden)
    assert home / "state" / "spill" / "s1" in found.shown


def test_what_the_user_names_as_readable_is_not_hidden_but_the_daemons_own_stays(
    home: Path,
) -> None:
    policy = SandboxPolicy(readable=(str(home / ".ssh"), str(home / "state")))
    found = profile(home, policy)
    assert home / ".ssh" not in found.hidden
    assert home / "state" in found.hidden


def test_a_hidden_name_that_is_a_link_hides_where_it_leads(home: Path) -> None:
    (home / ".aws").symlink_to(home / "cache")
    assert home / "cache" in profile(home, SandboxPolicy()).hidden


def test_a_command_sees_nothing_outside_the_workspace_but_programs_and_what_is_named(
    home: Path,
) -> None:
    policy = SandboxPolicy(readable=(str(home / "cache"),))
    for level in (SandboxLevel.READ_ONLY, SandboxLevel.BUILD, SandboxLevel.SESSION):
        visible = profile(home, policy, level).visible
        assert Path("/usr") in visible
        assert home / "cache" in visible
        assert not {home, *home.parents, home / "state", Path("/run"), Path("/var")} & {*visible}


def test_in_workspace_write_only_what_is_named_can_be_written(home: Path) -> None:
    policy = SandboxPolicy(writable=(str(home / "cache"), str(home / "missing")))
    found = profile(home, policy)
    assert found.writable == (home / "work", home / "cache")
    assert profile(home, SandboxPolicy("read_only")).writable == ()


def test_a_command_can_not_make_a_writable_place_of_a_link(home: Path) -> None:
    """What is named and lies in a writable place may be what a command before has made of it."""
    (home / "work" / "cache").symlink_to(home / ".ssh")
    policy = SandboxPolicy(writable=(str(home / "work" / "cache"),))
    assert profile(home, policy).writable == (home / "work",)


def test_the_whole_file_system_is_never_writable_but_by_full_access(home: Path) -> None:
    made = sandboxes(home)
    found = made.profile(SandboxLevel.SESSION, SandboxPolicy(), Path("/"), NO_PLACE)
    assert found.writable == ()


def test_where_the_home_is_in_the_workspace_only_reading_is_unasked(home: Path) -> None:
    policy = SandboxPolicy()
    made = sandboxes(home)
    assert made.loosest_unasked(policy, home / "work") is SandboxLevel.BUILD
    for workspace in (home, home.parent, Path("/")):
        assert made.loosest_unasked(policy, workspace) is SandboxLevel.READ_ONLY
    link = home.parent / "link"
    link.symlink_to(home)
    assert made.loosest_unasked(policy, link) is SandboxLevel.READ_ONLY


def test_a_configuration_that_links_into_the_workspace_is_not_written(home: Path) -> None:
    (home / "config").mkdir()
    (home / "work" / "agents").mkdir()
    (home / "work" / "config.toml").write_text("")
    for name in ("config.toml", "agents"):
        (home / "config" / name).symlink_to(home / "work" / name)
    places = partial(configuration_places, home / "config")
    made = profile(home, SandboxPolicy(), protected=lambda: tuple(places()))
    assert {home / "work" / "config.toml", home / "work" / "agents"} <= {*made.read_only}
    own = sandboxes(home, protected=lambda: tuple(places()))
    assert own.is_own(home / "work" / "agents" / "x.md")
    assert own.is_own(home / "state" / "token")
    assert not own.is_own(home / "work" / "src")


@each(
    ("path", "protected"),
    [
        (".bashrc", True), ("dotfiles/.ZSHRC", True), (".config/systemd/user/x.service", True),
        (".local/bin/ls", True), ("/home/u/.ssh/authorized_keys", True),
        (".config/nvim/init.lua", False), ("local/bin/ls", False), ("docs/.bashrc.md", False),
    ],
)  # fmt: skip
def test_what_a_users_programs_execute_is_protected(path, protected):
    assert is_protected(path) == protected


def test_only_a_git_command_that_a_person_allowed_writes_to_git_directories(home: Path) -> None:
    git = home / "work" / ".git"
    for level in (SandboxLevel.BUILD, SandboxLevel.SESSION):
        found = profile(home, SandboxPolicy(), level)
        assert git in found.read_only
        assert found.git == ()
    made = sandboxes(home).make(
        SandboxLevel.SESSION, SandboxPolicy(), home / "work", NO_PLACE, git_use="data"
    )
    assert made
    assert git not in made.profile.read_only
    assert {git / "hooks", git / "config"} <= set(made.profile.read_only)
    assert made.profile.git == (git,)
    limited = sandboxes(home).make(
        SandboxLevel.SESSION, SandboxPolicy(), home / "work", NO_PLACE, git_use="data", scope=()
    )
    assert limited
    assert limited.profile.git == ()


def test_only_the_session_itself_has_the_network_that_its_policy_gives_it(home: Path) -> None:
    for level in (SandboxLevel.READ_ONLY, SandboxLevel.BUILD, SandboxLevel.SESSION):
        found = profile(home, SandboxPolicy(network=True), level)
        assert found.network == (level is SandboxLevel.SESSION)


def test_what_only_reads_sees_the_workspace_and_nothing_else_of_the_home(home: Path) -> None:
    found = profile(home, SandboxPolicy(), SandboxLevel.READ_ONLY)
    assert not [path for path in found.visible if path.is_relative_to(home / "cache")]
    assert home not in found.visible
    assert found.workspace == home / "work"
    assert found.writable == ()


def test_the_strictest_of_modes_counts() -> None:
    assert strictest("full_access", "read_only", "workspace_write") == "read_only"
    assert strictest("full_access", "workspace_write") == "workspace_write"


def test_bubblewrap_is_told_parents_before_children(
    home: Path,
) -> None:
    inner = home / "work" / "a" / "b"
    inner.mkdir(parents=True)
    may = structs.replace(profile(home, SandboxPolicy()), read_only=(inner,))
    found = options(may, root=False)
    targets = [
        found[i + 2] if word != "--tmpfs" else found[i + 1]
        for i, word in enumerate(found)
        if word in ("--bind", "--ro-bind", "--tmpfs")
    ]
    work = str(home / "work")
    wanted = [work, f"{work}/a/b"]
    assert sorted(targets.index(one) for one in wanted) == [targets.index(one) for one in wanted]
    assert "--unshare-net" in found
    assert "--cap-drop" not in found


def test_network_and_capabilities_follow_the_policy_and_the_user(home: Path) -> None:
    session = profile(home, SandboxPolicy(network=True), SandboxLevel.SESSION)
    found = options(session, root=True)
    assert "--unshare-net" not in found
    assert found[found.index("--cap-drop") + 1] == "ALL"
    assert not {"CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_MKNOD"} & {*found}


def test_a_socket_in_a_directory_that_the_user_can_not_enter_stops_no_command() -> None:
    with jail_of() as jail:
        sock, held = str(jail.out / "agent.sock"), SandboxProfile(jail.workspace)
        with Bubblewrap("bwrap").wrap(["true"], held) as wrapped:
            assert sock in wrapped.arguments
        jail.out.chmod(0)
        with eyes_of_ordinary_user(), Bubblewrap("bwrap").wrap(["true"], held) as wrapped:
            assert sock not in wrapped.arguments
        jail.out.chmod(0o755)


def test_the_profile_for_macos_denies_writing_before_it_allows_some(home: Path) -> None:
    text = rules_for(profile(home, SandboxPolicy()))
    lines = text.splitlines()
    work = home / "work"

    def place(line: str) -> int:
        return lines.index(line)

    assert lines[0] == "(version 1)"
    assert (
        place("(deny file-write*)")
        < place(f'(allow file-write* (subpath "{work}"))')
        < place(f'(deny file-write* (subpath "{work}/.git"))')
        < place('(deny file-read* (subpath "/Users"))')
        < place(f'(allow file-read* (subpath "{work}"))')
        < place(f'(deny file-read* file-write* (subpath "{home}/.ssh"))')
        < place(f'(allow file-read* (subpath "{home}/state/spill/s1"))')
    )
    assert lines[-1] == "(deny network*)"
    assert text.count("(") == text.count(")")


def test_the_profile_for_macos_takes_a_path_as_text_and_hides_sockets_when_there_is_network(
    home: Path,
) -> None:
    (odd := home / 'a"b\\c').mkdir()
    policy = SandboxPolicy(network=True, writable=(str(odd),))
    text = rules_for(profile(home, policy, SandboxLevel.SESSION))
    assert f'(deny file-write* (subpath "{home}/work/.git"))' in text
    assert '/a\\"b\\\\c"' in text
    assert "(deny network*)" not in text
    assert f'(deny network-outbound (subpath "{home}/state"))' in text
    reads = rules_for(profile(home, SandboxPolicy("read_only")))
    assert f'allow file-write* (subpath "{home}/work' not in reads
    assert '(deny file-read* (subpath "/Users"))' in reads


def test_sandbox_exec_gets_the_profile_and_the_command(home: Path) -> None:
    may = profile(home, SandboxPolicy())
    with Seatbelt("/usr/bin/sandbox-exec").wrap(["ls", "-l"], may) as wrapped:
        assert wrapped.arguments[:3] == ("/usr/bin/sandbox-exec", "-p", rules_for(may))
        assert wrapped.arguments[-2:] == ("ls", "-l")


@pytest.mark.parametrize(
    ("platform", "said"),
    [
        ("darwin", "There is no sandbox-exec."),
        ("sunos5", "There is no sandbox for sunos5 that tiller supports."),
    ],
)
def test_where_there_is_no_sandbox_it_is_said_why(platform: str, said: str) -> None:
    found = find_sandbox(platform, path=os.devnull)
    assert (found.sandbox, found.problem) == (None, said)


def test_a_sandbox_that_does_not_work_here_is_no_sandbox(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to make namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    found = try_out(Bubblewrap(str(program)))
    assert found.sandbox is None
    assert "No permissions to make namespace" in found.problem
    assert try_out(Bubblewrap(str(tmp_path / "none"))).sandbox is None


PROBE = """
import sys
from tiller_daemon.sandbox.bubblewrap import Bubblewrap
from tiller_daemon.sandbox.detect import try_out
try_out(Bubblewrap(sys.argv[1]))
"""

CONFINED = """
import sys
from tiller_daemon.sandbox import detect
detect.bubblewrap_program = lambda path=None: sys.argv[1]
from tiller_daemon.program import run
sys.exit(run(["--sandboxed", "true"]))
"""


@pytest.mark.parametrize(
    ("code", "uses"),
    [(PROBE, 1), (CONFINED, 1), (CONFINED, 2)],
    ids=["probe", "tiller sandbox, probe", "tiller sandbox"],
)
def test_kill_9_while_a_sandbox_is_set_up_leaves_no_process(
    tmp_path: Path, code: str, uses: int
) -> None:
    """Its parent is killed at the `uses`-th start of bubblewrap that is no question for help."""
    bwrap = bubblewrap_program()
    if bwrap is None or not try_out(Bubblewrap(bwrap)).sandbox:
        pytest.skip("bubblewrap does not work here")
    program = tmp_path / "bwrap"
    program.write_text(
        f"""#!/bin/sh
if [ "$1" != --help ]; then
    echo >>{tmp_path}/starts
    if [ "$(wc -l <{tmp_path}/starts)" = {uses} ]; then
        kill -9 $PPID
        while kill -0 $PPID 2>/dev/null; do :; done
    fi
fi
exec {bwrap} "$@"
"""
    )
    program.chmod(0o755)
    mark = f"LEFT_BY={tmp_path}"
    variables = {**os.environ, "TILLER_HOME": str(tmp_path), "LEFT_BY": str(tmp_path)}
    command = [sys.executable, "-c", code, str(program)]
    done = subprocess.run(command, check=False, cwd=tmp_path.parent, env=variables)
    assert done.returncode == -signal.SIGKILL
    try:
        while left := marked(mark):
            assert all(gone(pid, timeout_s=10) for pid in left)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)


def test_a_sandbox_is_looked_for_once() -> None:
    looked: list[int] = []

    def find() -> SandboxSearchResult:
        looked.append(1)
        return SandboxSearchResult(None, "no")

    made = Sandboxes(find, NO_PLACE, {})
    assert made.must_ask(SandboxPolicy())
    assert made.must_ask(SandboxPolicy("read_only"))
    assert made.make(SandboxLevel.SESSION, SandboxPolicy(), NO_PLACE, NO_PLACE) is None
    assert made.loosest_unasked(SandboxPolicy(), NO_PLACE) is None
    assert looked == [1]


def test_full_access_asks_for_nothing_and_looks_for_no_sandbox() -> None:
    def find() -> SandboxSearchResult:
        raise AssertionError

    assert not Sandboxes(find, NO_PLACE, {}).must_ask(SandboxPolicy("full_access"))


@pytest.mark.parametrize(
    ("output", "is_shown"),
    [
        ("touch: cannot touch '/x': Read-only file system", True),
        ("curl: (6) Could not resolve host: example.com", True),
        ("OSError: [Errno 30] Read-only file system: '/x'", True),
        ("npm error ENOENT: no such file or directory, mkdir '/other/node_modules/x'", True),
        ("Error: ENOENT: no such file or directory, mkdir 'x/y'", False),
        ("1 failed, 3 passed", False),
        ("", False),
    ],
)
def test_a_failure_that_looks_like_the_sandboxs_is_explained(
    home: Path,
    output: str,
    is_shown: bool,  # noqa: FBT001
) -> None:
    sandbox = CommandSandbox(Seatbelt("x"), profile(home, SandboxPolicy()), SandboxLevel.BUILD, [])
    assert sandbox.was_denied(1, f"first\n{output}\nlast") == (output if is_shown else "")
    assert sandbox.was_denied(0, output) == ""
    inside = f"ENOENT: no such file or directory, mkdir '{sandbox.profile.workspace}/x/y'"
    assert sandbox.was_denied(1, inside) == ""
    assert "no network" in sandbox.explain()


@pytest.mark.parametrize(
    ("output", "is_shown"),
    [
        ("touch: cannot touch '/x': Read-only file system", True),
        ("curl: (6) Could not resolve host: example.com", False),
        ("getaddrinfo EAI_AGAIN x\ntouch: '/x': Read-only file system", True),
        ("Host key verification failed.", True),
        ("npm error code ENEEDAUTH", True),
    ],
)
def test_with_a_network_its_failures_are_not_the_sandboxs_but_hidden_logins_are(
    home: Path,
    output: str,
    is_shown: bool,  # noqa: FBT001
) -> None:
    held = profile(home, SandboxPolicy(network=True), SandboxLevel.SESSION)
    sandbox = CommandSandbox(Seatbelt("x"), held, SandboxLevel.SESSION, [])
    last = output.rpartition("\n")[2]
    assert sandbox.was_denied(1, output) == (last if is_shown else "")
    assert sandbox.was_denied(0, output) == ""


@pytest.mark.parametrize("level", list(SandboxLevel))
@pytest.mark.parametrize("mode", get_args(SandboxMode))
def test_a_permitted_network_opens_nothing_else_and_never_where_nothing_can_be_written(
    home: Path, level: SandboxLevel, mode: SandboxMode
) -> None:
    spill, policy = home / "state" / "spill" / "s1", SandboxPolicy(mode)
    made = sandboxes(home)
    closed, opened = (
        made.make(level, policy, home / "work", spill, network=network) for network in (False, True)
    )
    if closed is None or opened is None:
        assert closed is opened
        return
    expected = closed.profile.writes
    assert not closed.profile.network
    caches = opened.profile.caches
    assert opened.profile == structs.replace(closed.profile, network=expected, caches=caches)
    assert all(place.is_relative_to(spill) for _, place in caches)


@pytest.mark.parametrize("level", list(SandboxLevel))
@pytest.mark.parametrize("mode", get_args(SandboxMode))
@pytest.mark.parametrize("limited", [False, True])
def test_whether_there_is_a_sandbox_is_known_before_the_workspace_is_scanned(
    home: Path,
    level: SandboxLevel,
    mode: SandboxMode,
    limited: bool,  # noqa: FBT001
) -> None:
    work, spill, policy = home / "work", home / "state" / "spill" / "s1", SandboxPolicy(mode)
    taken = (work / "src",) if limited else ()
    for made in (sandboxes(home), Sandboxes(lambda: SandboxSearchResult(None, "no"), home, {})):
        sandbox = made.make(level, policy, work, spill, taken=taken)
        assert made.holds(level, policy, limited=limited) == (sandbox is not None)
    is_open = mode == "full_access" and not limited
    outside = SandboxLevel.SESSION if is_open else SandboxLevel.OUTSIDE
    assert sandboxes(home).holds(level, policy, limited=limited) == (level < outside)


def test_a_command_that_could_not_write_is_noticed_though_it_succeeds(home: Path) -> None:
    may = profile(home, SandboxPolicy(), SandboxLevel.READ_ONLY)
    sandbox = CommandSandbox(Seatbelt("x"), may, SandboxLevel.READ_ONLY, [])
    assert sandbox.was_denied(0, "rm: cannot remove 'x': Read-only file system")
    assert not sandbox.was_denied(0, "a line about: Operation not permitted")


def test_what_a_model_is_told_of_its_sandbox(home: Path) -> None:
    made = sandboxes(home)
    assert made.describe(SandboxPolicy("full_access")).startswith(
        "full_access: commands that only read"
    )
    assert made.describe(SandboxPolicy("read_only")).startswith("read_only: nothing can be written")
    assert "; network;" in made.describe(SandboxPolicy(network=True), asks=True)
    assert "; no network;" in made.describe(SandboxPolicy())
    assert "; no network, but the user is asked" in made.describe(SandboxPolicy(), asks=True)
    assert (
        Sandboxes(lambda: SandboxSearchResult(None, "no"), home, {}).describe(SandboxPolicy()) == ""
    )


def test_the_wheel_or_the_system_has_a_bubblewrap_for_these_tests() -> None:
    """Without one the jail is not tested; with one it must run, or say why not."""
    found = find_sandbox("linux")
    if found.sandbox is None:
        pytest.skip(found.problem)
    with found.sandbox.wrap(["sh", "-c", "echo $$"], SandboxProfile(Path("/"))) as wrapped:
        done = subprocess.run(
            wrapped.arguments,
            pass_fds=wrapped.descriptors,
            capture_output=True,
            check=True,
            text=True,
        )
    assert int(done.stdout) < 10
