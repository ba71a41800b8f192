"""The jail matrix: commands that try to get out, by mechanism, in each mode, as root and as a user.

What came of an attempt is judged from outside: by files, by who was connected to, by who lives.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, get_args

import pytest

from tiller_daemon.config import SandboxPolicy
from tiller_daemon.workspace import sandbox_launcher
from tiller_daemon.workspace.process import run_command
from tiller_daemon.workspace.sandbox import Confined, Confiner, Found
from tiller_daemon.workspace.sandbox_bubblewrap import Bubblewrap
from tiller_daemon.workspace.sandbox_landlock import LIMITS as LANDLOCK_LIMITS
from tiller_daemon.workspace.sandbox_put_back import REMOVED
from tiller_daemon.workspace.sandbox_search import bubblewrap_program, try_out, try_out_landlock
from tiller_protocol.settings import SandboxMode

NOBODY = 65534
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
SECRET = "the-secret-of-the-user"
WHO = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)

Mechanism = Literal["bubblewrap", "landlock"]
MECHANISMS = get_args(Mechanism)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="they are for Linux")

CONNECT = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.send(b'x')"
ABSTRACT = CONNECT.replace("sys.argv[1]", "chr(0)+sys.argv[1]")
TRACE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
os.kill(int(sys.argv[1]), 0) if libc.ptrace(0x4206, int(sys.argv[1]), 0, 0) == 0 else sys.exit(1)
print("traced")
"""

DEEDS = r"""
cd "$W"
echo x >inside
mkdir made && echo x >made/inside
echo x >"$OUT/written"
mkdir "$OUT/folder"
mv "$OUT/there" "$OUT/moved"
echo x >.git/hooks/pre-commit
echo '[core] fsmonitor = evil' >>.git/config
echo x >.git/config.worktree
mv .git .git-old && mkdir -p .git/hooks && echo x >.git/hooks/post-checkout
rm -rf .git/hooks; mkdir -p .git/hooks; echo x >.git/hooks/pre-push
echo ../evil >.git/commondir
for folder in .tiller .claude .codex .vscode; do mkdir -p $folder; echo x >$folder/evil; done
mv .vscode .v; mkdir .vscode; echo x >.vscode/evil
rmdir .claude; ln -s "$OUT" .claude
ln -s "$OUT/through" link; echo x >link
cat "$HOME/.ssh/id"; cat "$HOME/.netrc"; ls "$HOME/.aws"; cat "$RUNTIME/token"
cp -r "$HOME/.ssh" "$W/stolen"; tar cf - "$HOME" 2>/dev/null | grep -a -o the-secret-of-the-user
(exec 3<>/dev/tcp/127.0.0.1/$PORT; echo x >&3)
"$PYTHON" -c "$CONNECT" "$RUNTIME/ops.sock"
"$PYTHON" -c "$CONNECT" "$OUT/agent.sock"
"$PYTHON" -c "$ABSTRACT" "$NAME"
cat /proc/$VICTIM/environ; ls -l /proc/$VICTIM/cwd
"$PYTHON" -c "$TRACE" $VICTIM
kill -9 $VICTIM
"""

ESCAPES = r"""
umount "$RUNTIME"; mount -o remount,rw /; mount -o remount,rw "$OUT"
mount --bind "$OUT" "$W/made"
unshare -Urm sh -c 'umount "$RUNTIME"; cat "$RUNTIME/token"; mount -o remount,rw /; touch "$OUT/n"'
unshare -Urmp sh -c 'mount -o remount,bind,rw "$OUT"; echo x >"$OUT/n2"'
mknod "$W/disk" b 8 0
nsenter -t 1 -m cat "$RUNTIME/token"; cat /proc/1/root"$RUNTIME/token"
cat /proc/self/root"$RUNTIME/token"
"""
"""What belongs in a sandbox only. Nothing here may do harm where the sandbox does not hold: this is
how that is found out."""


class Jail:
    """A user's home, a workspace, and things of others that a command should not get at."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root, self.home, self.out = root, root / "home", root / "out"
        self.runtime, self.workspace, self.bare = root / "runtime", root / "w", root / "w2"
        for folder in (self.home / ".ssh", self.home / ".aws", self.out, self.runtime, self.bare):
            folder.mkdir(parents=True)
        for path in (".ssh/id", ".netrc", ".aws/credentials"):
            (self.home / path).write_text(SECRET)
        (self.runtime / "token").write_text(SECRET)
        (self.out / "there").write_text("")
        subprocess.run(["git", "init", "-q", self.workspace], check=True)
        shutil.rmtree(self.workspace / ".git" / "hooks")
        (self.workspace / ".git" / "hooks").mkdir()
        self.config = (self.workspace / ".git" / "config").read_text()
        self.name = root.name
        self.listeners: dict[str, socket.socket] = {}
        for name, address in (
            ("ops", str(self.runtime / "ops.sock")),
            ("agent", str(self.out / "agent.sock")),
            ("abstract", f"\0{self.name}"),
        ):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            self.listeners[name] = listener
        self.listeners["tcp"] = stack.enter_context(socket.socket())
        self.listeners["tcp"].bind(("127.0.0.1", 0))
        for listener in self.listeners.values():
            listener.listen()
            listener.settimeout(0)
        self.said = ""

    async def receive(self, piece: bytes) -> None:
        """Keep what commands say."""
        self.said += piece.decode(errors="replace")

    def as_user(self, who: str) -> list[str]:
        """Give all of it to that user, and say how to become them."""
        if who == "root" or os.geteuid() != 0:
            return []
        for path in (self.root, *self.root.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]

    async def attempt(self, mechanism: Mechanism, who: str, mode: SandboxMode) -> set[str]:
        """Make every attempt; returns what succeeded."""
        prefix = self.as_user(who)
        victim = _sleeper(prefix)
        try:
            await self._run(mechanism, prefix, mode, victim.pid)
            lived = _lives(victim)
        finally:
            victim.kill()
            victim.wait()
        return self._succeeded() | (set() if lived else {"signal"})

    async def _run(
        self, mechanism: Mechanism, prefix: list[str], mode: SandboxMode, victim: int
    ) -> None:
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home), "W": str(self.workspace),
            "OUT": str(self.out), "RUNTIME": str(self.runtime), "NAME": self.name,
            "PORT": str(self.listeners["tcp"].getsockname()[1]), "VICTIM": str(victim),
            "PYTHON": PYTHON,
            "CONNECT": CONNECT, "ABSTRACT": ABSTRACT, "TRACE": TRACE,
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }  # fmt: skip
        confined = self.confined(mechanism, prefix, mode, self.workspace)
        script = [*prefix, "bash", "-c", DEEDS]
        await run_command(
            ["bash", "-c", DEEDS + ESCAPES] if confined else script,
            directory=self.workspace,
            variables=variables,
            receive=self.receive,
            timeout_s=30,
            confined=confined,
        )

    async def run(
        self, mechanism: Mechanism, place: Path, command: str, mode: SandboxMode = "workspace_write"
    ) -> str:
        """Run a command as oneself; returns what it and its sandbox said."""
        confined = self.confined(mechanism, [], mode, place)
        assert confined
        await run_command(
            ["bash", "-c", command],
            directory=place,
            variables={"PATH": os.environ["PATH"], "OUT": str(self.out), "PYTHON": PYTHON},
            receive=self.receive,
            timeout_s=30,
            confined=confined,
        )
        return self.said + "".join(confined.told)

    def confined(
        self, mechanism: Mechanism, prefix: list[str], mode: SandboxMode, place: Path
    ) -> Confined | None:
        """The sandbox of a run in `place`."""
        found = sandbox_for(mechanism, prefix, self.root)
        confiner = Confiner(lambda: found, self.home, {}, own=(self.runtime,), temporary=())
        return confiner.confined(SandboxPolicy(mode), place, self.root / "none")

    def _succeeded(self) -> set[str]:
        w = self.workspace
        hooks = [name for name in ("pre-commit", "pre-push", "post-checkout")
                 if (w / ".git" / "hooks" / name).exists()]  # fmt: skip
        agents = [f for f in (".tiller", ".claude", ".codex", ".vscode")
                  if (w / f / "evil").exists() or (w / f).is_symlink()]  # fmt: skip
        facts = {
            "write_inside": (w / "inside").exists() and (w / "made" / "inside").exists(),
            "write_outside": {p.name for p in self.out.iterdir()} != {"there", "agent.sock"},
            "hooks": bool(hooks),
            "git_config": not (w / ".git" / "config").exists()
            or (w / ".git" / "config").read_text() != self.config
            or bool((w / ".git" / "config.worktree").exists()),
            "common": (w / ".git" / "commondir").exists(),
            "agents": bool(agents),
            "secrets": SECRET in self.said or (w / "stolen" / "id").exists(),
            "device": (w / "disk").exists(),
            "trace": "traced" in self.said,
        }
        facts |= {name: _was_connected(one) for name, one in self.listeners.items()}
        return {name for name, happened in facts.items() if happened}


def sandbox_for(mechanism: Mechanism, prefix: list[str], place: Path) -> Found:
    """The sandbox for a user; skips the test where there is none."""
    found = (
        landlock_for(prefix, place) if mechanism == "landlock" else bubblewrap_for(prefix, place)
    )
    if found.sandbox is None:
        pytest.skip(found.problem)
    return found


def landlock_for(prefix: list[str], place: Path) -> Found:
    """Landlock, with a Python and a launcher that this user may read."""
    launcher = place / "launcher.py"
    shutil.copy(sandbox_launcher.__file__, launcher)
    return try_out_landlock((*prefix, PYTHON, "-I", "-S", str(launcher)))


def bubblewrap_for(prefix: list[str], place: Path) -> Found:
    """Bubblewrap, as that user."""
    program = bubblewrap_program()
    if program is None:
        pytest.skip("no bwrap: apt install bubblewrap")
    if prefix:
        script = place / "bwrap"
        script.write_text(f'#!/bin/sh\nexec {" ".join(prefix)} "{program}" "$@"\n')
        script.chmod(0o755)
        return try_out(Bubblewrap(str(script), root=False))
    return try_out(Bubblewrap(program))


def _sleeper(prefix: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*prefix, "sleep", "100"], env={"MARK": SECRET, "PATH": "/bin:/usr/bin"}
    )


def _lives(victim: subprocess.Popen[bytes]) -> bool:
    """Whether it has not been killed; to die takes a moment."""
    try:
        victim.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return True
    return False


def _was_connected(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@pytest.fixture
def jail() -> Generator[Jail]:
    # Not below the directory of the tests: an ordinary user can't get there.
    root = Path(tempfile.mkdtemp(prefix="tiller-jail-"))
    root.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        yield Jail(root, stack)


EVERYTHING = {
    "write_inside", "write_outside", "hooks", "git_config", "common", "agents",
    "secrets", "ops", "agent", "abstract", "tcp", "signal",
}  # fmt: skip

ALLOWED: dict[tuple[Mechanism, SandboxMode], set[str]] = {
    ("bubblewrap", "read_only"): {"agent"},
    ("bubblewrap", "workspace_write"): {"write_inside", "agent"},
    ("landlock", "read_only"): set(),
    ("landlock", "workspace_write"): {"write_inside"},
}
"""In bubblewrap a socket that nobody has named can be connected to in any mode."""


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("mode", get_args(SandboxMode))
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_b60_a_command_gets_no_further_than_its_sandbox(
    jail: Jail, mechanism: Mechanism, who: str, mode: SandboxMode
) -> None:
    succeeded = await jail.attempt(mechanism, who, mode)
    if mode == "full_access":
        assert succeeded >= EVERYTHING, jail.said
    else:
        assert succeeded == ALLOWED[mechanism, mode], jail.said


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_nothing_is_left_of_what_stood_in_for_missing_files(
    jail: Jail, mechanism: Mechanism, who: str
) -> None:
    await jail.attempt(mechanism, who, "workspace_write")
    assert not {".tiller", ".claude", ".codex", ".vscode"} & {
        one.name for one in jail.workspace.iterdir()
    }
    assert not (jail.workspace / ".git" / "config.worktree").exists()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_where_there_is_no_repository_none_can_be_made(
    jail: Jail, mechanism: Mechanism
) -> None:
    """Its configuration would be the command's own."""
    command = "git init -q; mkdir -p .git/hooks && echo x >.git/hooks/pre-commit"
    said = await jail.run(mechanism, jail.bare, command)
    if mechanism == "bubblewrap":
        assert "Read-only file system" in said
        assert list(jail.bare.iterdir()) == []
    assert not (jail.bare / ".git" / "config").exists()
    assert not (jail.bare / ".git" / "hooks").exists()


async def test_landlock_puts_back_what_it_can_not_keep_from_writing(jail: Jail) -> None:
    """While a command runs it is there: so it is said, and so nothing runs on in the background."""
    hook = ".git/hooks/pre-commit"
    said = await jail.run(
        "landlock", jail.workspace, f"echo x >{hook} && cat {hook} && mkdir .tiller"
    )
    assert said.startswith("x\n")
    assert f"{jail.workspace}/.git/hooks may not be changed: it was put back" in said
    assert not (jail.workspace / hook).exists()
    aside = jail.workspace / f".git/hooks{REMOVED}" / "pre-commit"
    assert aside.read_text() == "x\n"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("mode", ["read_only", "workspace_write"])
async def test_a_command_reaches_no_device_and_no_terminal_but_its_own(
    jail: Jail, mechanism: Mechanism, mode: SandboxMode
) -> None:
    """What the user types elsewhere is nobody's business, nor is the disk as such."""
    ours, theirs = os.openpty()
    try:
        script = f"exec 3<{os.ttyname(theirs)} && echo read; echo typed >{os.ttyname(theirs)}"
        said = await jail.run(mechanism, jail.workspace, f"{script}; head -c1 /dev/kmsg", mode)
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):
            os.read(ours, 64)
    finally:
        os.close(ours)
        os.close(theirs)
    assert "read" not in said.splitlines()
    assert "/dev/kmsg" in said
    said = await jail.run(
        mechanism, jail.workspace, "head -c9 /dev/urandom >/dev/null && echo fine"
    )
    assert "fine" in said, said


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


async def test_in_bubblewrap_sockets_of_ones_own_work_and_no_other_way_out_does(
    jail: Jail,
) -> None:
    """A project's tests use them; a socket of a virtual machine's host has no namespace."""
    (jail.workspace / "sockets.py").write_text(SOCKETS)
    said = await jail.run("bubblewrap", jail.workspace, '"$PYTHON" sockets.py')
    assert said.count("connected") == 2, said
    assert said.count("Address family not supported") == 2, said
    assert "Function not implemented" in said, said


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_workspace_can_not_be_moved_away_and_become_a_link(
    jail: Jail, mechanism: Mechanism
) -> None:
    """Where it leads the next command could write."""
    place = jail.out / "deep" / "w"
    place.mkdir(parents=True)
    found = sandbox_for(mechanism, [], jail.root)
    confiner = Confiner(lambda: found, jail.home, {}, temporary=(str(jail.out),))
    confined = confiner.confined(SandboxPolicy(), place, place / "none")
    script = (
        'mv "$W" ../gone; ln -s / "$W"; mv "$OUT/deep" "$OUT/gone"; echo x >in; rm "$OUT/there"'
    )
    await run_command(
        ["bash", "-c", script],
        directory=place,
        variables={"PATH": os.environ["PATH"], "OUT": str(jail.out), "W": str(place)},
        receive=jail.receive,
        timeout_s=30,
        confined=confined,
    )
    assert not place.is_symlink()
    assert (place / "in").exists(), jail.said
    assert (jail.out / "there").exists() == (mechanism == "landlock")


LIMITS = """
chmod 700 "$OUT"; touch -d 2001-01-01 "$OUT"; ps -e | wc -l; ls / >/dev/null || echo unlisted
"$PYTHON" -c 'import socket; socket.socket(socket.AF_UNIX)' 2>&1 | tail -1
"$PYTHON" -c 'import os; os.openpty()' 2>&1 | tail -1
"""


@pytest.mark.parametrize("mode", ["read_only", "workspace_write"])
async def test_what_landlock_does_not_hold_is_what_it_is_said_not_to_hold(
    jail: Jail, mode: SandboxMode
) -> None:
    said = await jail.run("landlock", jail.workspace, LIMITS, mode)
    changed = jail.out.stat().st_mode & 0o777 == 0o700
    assert changed == (mode == "workspace_write")
    assert (jail.out.stat().st_mtime < 1e9) == changed
    assert "unlisted" in said
    assert "Address family not supported" in said
    assert "out of pty devices" in said or "Permission denied" in said
    assert "modes, owners and times of files elsewhere" in LANDLOCK_LIMITS


async def test_landlock_lets_a_command_do_its_work(jail: Jail) -> None:
    """What honest commands need: the devices, pipes, signals among themselves, moves, modes."""
    said = await jail.run("landlock", jail.workspace, WORK)
    assert "all of it" in said, said


WORK = """
set -e
mkdir -p a/b; echo x >a/x; mv a/x a/b/y; ln a/b/y a/z; ln -s z a/l; chmod +x a/b/y; truncate -s0 a/z
echo x >/dev/null; head -c9 /dev/urandom >a/r; mkfifo a/f; (echo p >a/f &) ; cat a/f
sleep 100 & kill $!; wait $! || true
cat <(echo p); echo q | cat /dev/stdin >/dev/stderr; echo r >/dev/stdout
"$PYTHON" -c 'import socket, subprocess; socket.socketpair(); subprocess.run(["true"], check=True)'
"$PYTHON" -c 'import multiprocessing; multiprocessing.Lock()'
git add -A; git -c user.name=t -c user.email=t@t commit -qm one; git checkout -qb two; rm -r a
git stash -q; git stash pop -q; echo all of it
"""
