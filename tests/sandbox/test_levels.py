"""The matrix of probes: what a command gets through in each level, whoever it runs as.

A probe is a script that exits with 0 when it got through. What is changed outside, in `.git` and in
what other programs execute is judged from outside as well, whatever the scripts say. Nothing here
may do harm where a sandbox does not hold: this is how that is found out.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Generator
from typing import Final

import pytest
import trio

from support.jail import (
    MECHANISMS,
    PYTHON,
    WHO,
    Jail,
    Mechanism,
    jail_of,
    sandbox_for,
)
from tiller_daemon.sandbox.detect import bubblewrap_program
from tiller_daemon.sandbox.landlock import LIMITS as LANDLOCK_LIMITS
from tiller_daemon.sandbox.level import SandboxLevel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="they are for Linux")

READ_ONLY, BUILD, SESSION = SandboxLevel.READ_ONLY, SandboxLevel.BUILD, SandboxLevel.SESSION

CONNECT: Final = '"$PYTHON" -c "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect({})"'
TRACE: Final = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(0 if libc.ptrace(16, int(sys.argv[1]), 0, 0) == 0 else 1)
"""
CALL: Final = """
import ctypes, os, platform, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {
    "clone": (56, 220), "clone3": (435, 435), "userfaultfd": (323, 282)
}[sys.argv[1]][platform.machine() == "aarch64"]
flags = 0x10000000
wanted = ctypes.create_string_buffer(struct.pack("=11Q", flags, 0, 0, 0, 17, *(0,) * 6))
arguments = {
    "clone": (ctypes.c_long(flags | 17), None, None, None, None),
    "clone3": (wanted, ctypes.c_long(88)),
    "userfaultfd": (ctypes.c_long(1),),
}[sys.argv[1]]
done = libc.syscall(ctypes.c_long(number), *arguments)
if done == 0 and sys.argv[1] != "userfaultfd":
    os._exit(0)
sys.exit(0 if done >= 0 else 1)
"""

NEVER: Final = {
    # Outside of the workspace.
    "write outside": 'echo x >"$OUT/written"',
    "make a directory outside": 'mkdir "$OUT/folder"',
    "move what is outside": 'mv "$OUT/there" "$OUT/moved"',
    "remove what is outside": 'rm "$OUT/there"',
    "cut off what is outside": ': >"$OUT/there"',
    "write through a link": "echo x >link/written",
    "write to the home": 'echo x >>"$HOME/.bashrc"',
    "write to the configuration of git": 'echo x >"$HOME/.config/git/config"',
    "write to the system": "echo x >/etc/tiller-probe",
    "write to /usr": "touch /usr/tiller-probe",
    # Kernel knobs.
    "core_pattern": 'cd /proc/sys/kernel && v=$(cat core_pattern) && echo "$v" >core_pattern',
    "sysctl": "v=$(cat /proc/sys/vm/swappiness) && echo $v >/proc/sys/vm/swappiness",
    "sysrq": "echo h >/proc/sysrq-trigger",
    "sys": "f=$(find /sys/kernel /sys/module -type f -perm -u=w | head -1); : >>$f",
    "dynamic cgroup": "mkdir /sys/fs/cgroup/tiller-probe",
    "kernel log": "head -c1 /dev/kmsg | grep -q .",
    "a block device": "mknod disk b 8 0 && head -c1 disk",
    # Secrets.
    "keys of ssh": 'cat "$HOME/.ssh/id" | grep -q .',
    "netrc": 'cat "$HOME/.netrc" | grep -q .',
    "credentials": 'ls "$HOME/.aws" | grep -q .',
    "the token of the daemon": 'cat "$RUNTIME/token" | grep -q .',
    "an archive of the home": 'tar cf - "$HOME" 2>/dev/null | grep -a -q "$SECRET"',
    # Others.
    "a socket of the daemon": CONNECT.format("'$RUNTIME/ops.sock'"),
    "a socket of an agent": CONNECT.format("'$OUT/agent.sock'"),
    "a socket in the home": CONNECT.format("'$HOME/other/agent.sock'"),
    "an abstract socket": CONNECT.format("chr(0)+'$NAME'"),
    "the network": "(exec 3<>/dev/tcp/127.0.0.1/$PORT)",
    "see another process": "grep -q . /proc/$VICTIM/environ",
    "slow another process down": '"$PYTHON" -c "import os; os.setpriority(0, $VICTIM, 19)"',
    "give another process other processors": "taskset -p -c 0 $VICTIM",
    "let another process run only when idle": "chrt --idle -p 0 $VICTIM",
    "let another process wait for the disk": "ionice -c 3 -p $VICTIM",
    "trace another process": f"\"$PYTHON\" -c '{TRACE}' $VICTIM",
    "end another process": "kill -0 $VICTIM",
    "trace the first process": f"\"$PYTHON\" -c '{TRACE}' 1",
    "write to the first process": ": >>/proc/1/mem",
    # Ways out of namespaces.
    "unmount": 'umount "$RUNTIME"',
    "remount": "mount -o remount,rw /",
    "mount again": 'mount --bind "$OUT" "$W"',
    "namespaces of its own": 'unshare -Urm sh -c \'umount "$RUNTIME" && cat "$RUNTIME/token"\'',
    "a user namespace": "unshare -U true",
    "a user namespace by clone": f"\"$PYTHON\" -c '{CALL}' clone",
    "a user namespace by clone3": f"\"$PYTHON\" -c '{CALL}' clone3",
    "faults in pages": f"\"$PYTHON\" -c '{CALL}' userfaultfd",
    "filters of the network": (
        "\"$PYTHON\" -c 'import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)'"
    ),
    "another namespace": 'nsenter -t 1 -m cat "$RUNTIME/token"',
    "the root of the first process": 'cat /proc/1/root"$RUNTIME/token"',
    "its own root": 'cat /proc/self/root"$RUNTIME/token"',
    "change the root": 'chroot "$OUT" true',
    "load a module": "modprobe dummy",
    "the clock": 'date -s "$(date)"',
    "keys of the kernel": "keyctl show",
}
"""What no level allows, except as listed in `LETS_THROUGH`."""

EXECUTED: Final = {
    "a hook": "echo x >.git/hooks/pre-commit",
    "new hooks": "rm -rf .git/hooks; mkdir .git/hooks && echo x >.git/hooks/pre-push",
    "the configuration": "echo '[core] fsmonitor = evil' >>.git/config",
    "the configuration of a work tree": "echo x >.git/config.worktree",
    "commondir": "echo ../evil >.git/commondir",
    "commondir in the background": (
        "(setsid sh -c 'echo ../evil >.git/commondir' &) ; sleep 0.3; test -e .git/commondir"
    ),
    "another git directory": "mv .git .git-old && mkdir -p .git/hooks && echo x >.git/hooks/evil",
    "attributes": "mkdir -p .git/info && echo '* filter=evil' >.git/info/attributes",
    "alternates": "echo /tmp >.git/objects/info/alternates",
    "the program tiller": "mkdir .tiller && echo x >.tiller/config.toml",
    "agents": "mkdir .claude .codex; echo x >.claude/evil && echo x >.codex/evil",
    "the editor": "mkdir .vscode && echo x >.vscode/tasks.json",
    "a link for a directory": 'rmdir .claude; ln -s "$OUT" .claude',
}
"""What other programs would execute later, and nothing may write unasked."""

UNASKED: Final = {
    "the index": "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),nested",
    "a commit": "git commit -q --allow-empty -m x",
    "a branch": "git branch other",
    "the nested repository": "git -C nested config core.fsmonitor evil",
    "a hook of the nested one": "mkdir -p nested/.git/hooks && echo x >nested/.git/hooks/evil",
    "shadow": "grep -q . /etc/shadow",
    "a file that rules protect": "cat .env | grep -q .",
    "a copy of one": "cp .env copy && grep -q . copy",
    "another name of one": "mv .env other && grep -q . other",
}
"""What an approved command may do."""

READS_ONLY: Final = {
    "write in the workspace": "echo x >inside",
    "make a directory": "mkdir made",
    "change a mode": "chmod 600 file",
    "change a time": "touch -d 2001-01-01 file",
    "remove a file": "rm file",
    "write with find": "find . -name file -fprint inside | grep -q x || test -e inside",
    "write with awk": 'awk \'BEGIN{print "x" > "inside"}\'',
    "write with sort": "sort -o inside file",
    "write with xargs": "echo x | xargs -I{} -Ils sh -c 'echo >inside' ; test -e inside",
    "write with dash": "sh -c 'ls; [[ -f x || touch == P ]]'; test -e == ",
    "write with a Unicode digit": "ls >&\uff11; test -e \uff11",
    "read the home": 'grep -q . "$HOME/.bash_history"',
    "read another directory": 'grep -q . "$HOME/other/notes"',
    "read through a link": "grep -q . link/notes",
    "read by a pattern": "cat l*k/notes | grep -q .",
    "read from where the shell was": "cd && grep -q . .bash_history",
    "read above": "grep -q . ~+/../other/notes",
    "read recursively": "grep -R what-the-user . | grep -q .",
    "read with find": "find -L . -name notes -exec cat {} + | grep -q .",
    "a socket of its own": "\"$PYTHON\" -c 'import socket; socket.socket(socket.AF_UNIX)'",
}
"""What a build may do, or a command that only reads could be led to."""

PROBES: Final = {**NEVER, **EXECUTED, **UNASKED, **READS_ONLY}

OF_HOME: Final = {
    "read the home", "read another directory", "read through a link", "read by a pattern",
    "read from where the shell was", "read above", "read recursively", "read with find",
}  # fmt: skip
"""No level shows a home."""

PUT_ASIDE: Final = {"the program tiller", "agents", "the editor", "a link for a directory"}
"""What a command may make, but it does not stay."""

LETS_THROUGH: Final[dict[tuple[Mechanism, SandboxLevel], set[str]]] = {
    ("bubblewrap", READ_ONLY): set(),
    # The home is an empty directory, and what is written there is lost.
    ("bubblewrap", BUILD): {*READS_ONLY, *PUT_ASIDE, "write to the home"} - OF_HOME,
    ("bubblewrap", SESSION): {*READS_ONLY, *UNASKED, *PUT_ASIDE} - OF_HOME,
    ("landlock", READ_ONLY): set(),
    ("landlock", SESSION): {*READS_ONLY, *UNASKED, *EXECUTED} - OF_HOME - {"a socket of its own"},
}
"""By what a probe says of itself; what is left of it outside is another question."""

LEFT_BY_PERMITTED: Final = re.compile(
    r"home/w/(?!\.git/|(?:\.tiller|\.claude|\.codex|\.vscode)(?!\.disabled)|nested/\.git)"
    r"|home/w/\.git/(?:objects|refs|logs|index|HEAD|COMMIT_EDITMSG|ORIG_HEAD)|home/w/nested/\.git"
)
"""What may have changed after a command that a person allowed, in bubblewrap."""


@pytest.fixture
def jail() -> Generator[Jail]:
    with jail_of() as made:
        yield made


@contextlib.contextmanager
def victim_of(prefix: list[str]) -> Generator[int]:
    """A process of the user's that commands should not get at."""
    with subprocess.Popen([*prefix, "sleep", "300"], env={"PATH": "/bin:/usr/bin"}) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def script_of(probes: dict[str, str]) -> str:
    """All probes in one script, each in a shell of its own; a line for each that got through."""
    lines = ["exec 2>/dev/null </dev/null"]
    for name, probe in probes.items():
        lines.append(f"(cd \"$W\"; {probe}\n) && printf '\\n<<%s>>\\n' {name!r}")
    return "\n".join([*lines, "echo all were tried"])


def test_there_are_enough_probes_to_mean_something():
    combinations = len(LETS_THROUGH) * len(WHO)
    assert len(PROBES) >= 75
    assert len(PROBES) * combinations >= 300


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize(("mechanism", "level"), LETS_THROUGH)
@pytest.mark.promise("B60")
async def test_a_command_gets_no_further_than_its_sandbox(
    jail: Jail, mechanism: Mechanism, level: SandboxLevel, who: str
) -> None:
    prefix = jail.as_user(who)
    found = sandbox_for(mechanism, prefix, jail.root)
    before = jail.state()
    sandbox = jail.sandbox(found, level)
    assert sandbox
    with victim_of(prefix) as victim:
        await jail.run(sandbox, script_of(PROBES), variables={"VICTIM": str(victim)})
    assert "all were tried" in jail.said, jail.said
    got_through = set(re.findall(r"<<(.+?)>>", jail.said))
    assert got_through <= LETS_THROUGH[mechanism, level], jail.said
    # The network is not part of these sandboxes, and no connection may have been made.
    assert jail.connected() == set()
    after = jail.state()
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    changed.discard("home/w")
    if level is READ_ONLY:
        assert changed == set()
    elif mechanism == "bubblewrap":
        left = {path for path in changed if not LEFT_BY_PERMITTED.match(path)}
        assert left == set()
    if level is BUILD:
        assert not {path for path in changed if path.startswith("home/w/.git/")}
        assert not {path for path in changed if path.startswith("home/w/nested/.git")}


@pytest.mark.parametrize("who", WHO)
async def test_the_probes_get_through_where_nothing_holds_them(jail: Jail, who: str) -> None:
    """Those that can do no harm: a probe that fails everywhere would prove nothing."""
    prefix = jail.as_user(who)
    harmless = {
        name: probe
        for name, probe in PROBES.items()
        if name not in NOT_TRIED and not name.startswith(("write to the system", "write to /usr"))
    }
    with victim_of(prefix) as victim:
        await jail.run(None, script_of(harmless), prefix=prefix, variables={"VICTIM": str(victim)})
    got_through = set(re.findall(r"<<(.+?)>>", jail.said))
    assert harmless.keys() - got_through <= FAIL_ANYWAY, jail.said


NOT_TRIED: Final = {
    "core_pattern", "sysctl", "sysrq", "sys", "dynamic cgroup", "kernel log", "a block device",
    "unmount", "remount", "mount again", "namespaces of its own", "another namespace",
    "the root of the first process", "change the root", "load a module", "the clock",
    "keys of the kernel", "trace the first process", "write to the first process", "shadow",
    "trace another process",
}  # fmt: skip
"""What would touch this machine, or needs namespaces that are not there."""

FAIL_ANYWAY: Final = {
    "write with find", "a copy of one", "another name of one", "alternates", "write with sort",
    "a file that rules protect",
    "remove what is outside", "cut off what is outside", "a link for a directory", "sort",
    "read through a link", "read by a pattern", "read recursively", "read with find",
    "write through a link", "the nested repository", "commondir", "a commit", "a branch",
    "the index", "write with dash", "another git directory", "write with xargs",
    "write in the workspace",
}  # fmt: skip
"""What one probe takes from another when they run one after the other in the same place."""


LINUX_CAPABLE = """
import sys
from tiller_daemon.sandbox.detect import find_sandbox
found = find_sandbox("linux")
print(found.sandbox and found.sandbox.name, "|", found.instead)
"""


async def test_in_a_container_without_user_namespaces_landlock_holds_what_reads(jail: Jail) -> None:
    sandbox_for("bubblewrap", [], jail.root)
    without = ("--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--uid", "1000")
    done = await trio.run_process(
        [str(bubblewrap_program()), *without, "--", sys.executable, "-c", LINUX_CAPABLE],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    if b"Unknown option" in done.stderr:
        pytest.skip("this bubblewrap can't take namespaces away")
    assert done.stdout.startswith(b"landlock | Bubblewrap does not work here"), done


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_where_there_is_no_repository_a_build_can_make_none(
    jail: Jail, mechanism: Mechanism
) -> None:
    if mechanism != "bubblewrap":
        pytest.skip("a build is always asked about there")
    found = sandbox_for(mechanism, [], jail.root)
    script = "git init -q; git init -q --bare .; mkdir -p .git/hooks && echo x >.git/hooks/evil"
    sandbox = jail.sandbox(found, BUILD, place=jail.bare)
    await jail.run(sandbox, script, place=jail.bare)
    assert not (jail.bare / ".git").exists()
    assert not (jail.bare / "HEAD").exists()


@pytest.mark.parametrize("who", WHO)
async def test_an_empty_git_directory_does_not_become_a_repository_around_it(
    jail: Jail, who: str
) -> None:
    (jail.bare / ".git").mkdir()
    prefix = jail.as_user(who)
    found = sandbox_for("bubblewrap", prefix, jail.root)
    script = (
        "mkdir -p objects refs; echo 'ref: refs/heads/main' >HEAD;"
        " printf '[core]\\nbare = false\\nworktree = .\\nfsmonitor = touch ran; true\\n' >config"
    )
    sandbox = jail.sandbox(found, BUILD, place=jail.bare)
    await jail.run(sandbox, script, place=jail.bare)
    assert not (jail.bare / "HEAD").exists()
    assert list((jail.bare / ".git").iterdir()) == []
    await trio.run_process(["git", "status"], cwd=jail.bare, check=False, capture_stdout=True)
    assert not (jail.bare / "ran").exists()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_command_reaches_no_terminal_but_its_own(jail: Jail, mechanism: Mechanism) -> None:
    found = sandbox_for(mechanism, [], jail.root)
    ours, theirs = os.openpty()
    try:
        name = os.ttyname(theirs)
        for level in (READ_ONLY, SESSION):
            script = f"(exec 3<{name}) && echo read; echo typed >{name}"
            await jail.run(jail.sandbox(found, level), script)
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):
            os.read(ours, 64)
    finally:
        os.close(ours)
        os.close(theirs)
    assert "read" not in jail.said.splitlines()


SOCKETS = """
import ctypes, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
for family, address in ((socket.AF_UNIX, "here.sock"), (socket.AF_INET, ("127.0.0.1", 0))):
    with socket.socket(family) as listener, socket.socket(family) as caller:
        listener.bind(address)
        listener.listen()
        caller.connect(listener.getsockname())
        print("connected")
for family in (socket.AF_VSOCK, socket.AF_ALG):
    try:
        socket.socket(family, socket.SOCK_STREAM if family == 40 else socket.SOCK_SEQPACKET)
    except OSError as error:
        print(error.strerror)
KEYCTL = {"x86_64": 250, "aarch64": 219}[platform.machine()]
print("keys" if libc.syscall(KEYCTL, 0, -3, 0) >= 0 else os.strerror(ctypes.get_errno()))
"""


@pytest.mark.parametrize("network", [False, True])
async def test_in_bubblewrap_sockets_of_ones_own_work_and_those_of_others_do_not(
    jail: Jail,
    network: bool,  # noqa: FBT001
) -> None:
    """A project's tests use them; a socket of a virtual machine's host has no namespace."""
    (jail.workspace / "sockets.py").write_text(SOCKETS)
    found = sandbox_for("bubblewrap", [], jail.root)
    sandbox = jail.sandbox(found, SESSION, network=network)
    abstract = CONNECT.format("chr(0)+'$NAME'")
    await jail.run(sandbox, f'"$PYTHON" sockets.py; {abstract}')
    assert jail.said.count("connected") == 2, jail.said
    assert jail.said.count("Address family not supported") == 2, jail.said
    assert "Function not implemented" in jail.said, jail.said
    assert jail.connected() == set()


async def test_what_landlock_does_not_hold_is_what_it_is_said_not_to_hold(jail: Jail) -> None:
    found = sandbox_for("landlock", [], jail.root)
    script = 'chmod 700 "$OUT"; echo x >.git/hooks/pre-commit'
    await jail.run(jail.sandbox(found, READ_ONLY), script)
    assert jail.out.stat().st_mode & 0o777 != 0o700
    assert not (jail.workspace / ".git/hooks/pre-commit").exists()
    await jail.run(jail.sandbox(found, SESSION), script)
    assert jail.out.stat().st_mode & 0o777 == 0o700
    assert (jail.workspace / ".git/hooks/pre-commit").exists()
    assert "modes, owners and times of files elsewhere" in LANDLOCK_LIMITS
    assert "can also write to `.git`" in LANDLOCK_LIMITS


WORK = """
set -e
mkdir -p a/b; echo x >a/x; mv a/x a/b/y; ln a/b/y a/z; ln -s z a/l; chmod +x a/b/y; truncate -s0 a/z
echo x >/dev/null; head -c9 /dev/urandom >a/r; mkfifo a/f; (echo p >a/f &) ; cat a/f
sleep 100 & kill $!; wait $! || true
cat <(echo p); echo q | cat /dev/stdin >&2; echo r
test -z "$(nice -n 1 true 2>&1)"; ionice -c 3 true
echo x >/tmp/of-the-session-$$; rm /tmp/of-the-session-$$
"$PYTHON" -c 'import socket, subprocess; socket.socketpair(); subprocess.run(["true"], check=True)'
"$PYTHON" -c 'import multiprocessing; multiprocessing.Lock()'
git add -A; git commit -qm one; git checkout -qb two; rm -r a
git stash -q; git stash pop -q; echo all of it
"""


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_command_does_its_work(jail: Jail, mechanism: Mechanism, who: str) -> None:
    """What honest commands need: devices, pipes, signals, priorities, moves, modes, git."""
    prefix = jail.as_user(who)
    found = sandbox_for(mechanism, prefix, jail.root)
    await jail.run(jail.sandbox(found, SESSION, git_use="data"), WORK)
    assert "all of it" in jail.said, jail.said
    assert jail.git("branch", "--show-current") == "two\n"
    assert PYTHON
