"""Landlock's launcher and filter: that they fail closed, and know both architectures.

That they are enforced is shown in `test_levels`.
"""

import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from support.each import each
from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.base import (
    SandboxProfile,
    SandboxSearchResult,
)
from tiller_daemon.sandbox.detect import try_out_landlock
from tiller_daemon.sandbox.landlock import LAUNCHER, Landlock
from tiller_daemon.sandbox.launcher import Restrictions, version
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.sandboxes import Sandboxes
from tiller_daemon.sandbox.seccomp import (
    filter_in_namespaces,
    filter_without_namespaces,
)

ALLOWED, REFUSED, KILLED = 0x7FFF, 0x5, 0x8000

needs_landlock = pytest.mark.skipif(
    sys.platform != "linux" or version() < 6, reason="the kernel has no such landlock"
)


def judge(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What a filter says of a call: the kernel's machine, as far as filters use it."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = register = 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        match code:
            case 0x20:
                (register,) = struct.unpack_from("=I", data, value)
            case 0x54:
                register &= value
            case 0x15:
                at += yes if register == value else no
            case 0x35:
                at += yes if register >= value else no
            case _:
                assert code == 0x06
                return value >> 16


X86, ARM, I386 = ("x86_64", 0xC000003E), ("aarch64", 0xC00000B7), 0x40000003
CALLS = {"x86_64": (41, 53, 16, 302, 90, 0), "aarch64": (198, 199, 29, 261, 53, 63)}
"""socket, socketpair, ioctl, prlimit64, chmod or fchmodat, read."""


@pytest.mark.parametrize(("machine", "architecture"), [X86, ARM])
def test_the_filter_means_the_same_on_both_architectures(machine: str, architecture: int) -> None:
    socket, pair, ioctl, limit, chmod, read = CALLS[machine]

    def said(number: int, *arguments: int, network: bool = False, writes: bool = True) -> int:
        program = filter_without_namespaces(machine, network=network, writes=writes)
        return judge(program, architecture, number, *arguments)

    assert said(read) == ALLOWED
    for family in range(50):
        assert said(socket, family) == REFUSED
        reachable = family in (2, 10, 16)
        assert said(socket, family, network=True) == (ALLOWED if reachable else REFUSED)
    assert said(pair, 1, 1 | 0x80800) == said(pair, 1, 5) == ALLOWED
    assert said(pair, 1, 2) == said(pair, 1, 3) == said(pair, 2, 1) == REFUSED
    assert said(ioctl, 0, 0x5401) == ALLOWED
    assert said(ioctl, 0, 0x5412) == said(ioctl, 0, 0x541C) == REFUSED
    assert said(ioctl, 0, 0x5412 | 1 << 32) == REFUSED
    # chattr, verity, a version, a subvolume of btrfs or bcachefs, attributes of FAT.
    for request in (0x40086602, 0x40806685, 0x40087602, 0x5000940E, 0x4020BC10, 0x40047211):
        assert said(ioctl, 0, request) == ALLOWED
        assert said(ioctl, 0, request, writes=False) == REFUSED
    # The size of a terminal, how much is there, an address; lsattr, also for XFS; filefrag.
    for request in (0x5401, 0x541B, 0x8915, 0x80086601, 0x80087601, 0x801C581F, 0xC020660B, 2):
        assert said(ioctl, 0, request, writes=False) == ALLOWED
    assert said(ioctl, 0, 0x5412, writes=False) == REFUSED
    of_processes = (142, 144, 203, 314) if machine == "x86_64" else (118, 119, 122, 274)
    for number in (limit, *of_processes):
        assert said(number, 0) == ALLOWED
        assert said(number, 77) == REFUSED
    of_groups = {141: 0, 251: 1} if machine == "x86_64" else {140: 0, 30: 1}
    for number, one_process in of_groups.items():
        for which in range(4):
            assert said(number, which, 0) == (ALLOWED if which == one_process else REFUSED)
            assert said(number, which, 77) == REFUSED
    assert said(425) == REFUSED
    assert said(chmod) == ALLOWED
    assert said(chmod, writes=False) == REFUSED


SET_MODE = {
    "x86_64": {90: 1, 91: 1, 268: 2, 452: 2, 85: 1, 133: 1, 259: 2, 2: 2, 257: 3},
    "aarch64": {52: 1, 53: 2, 452: 2, 33: 2, 56: 3},
}
"""chmod, creat, mknod and open in all variants, each with the position of the mode."""
OPENS = {"x86_64": (2, 257), "aarch64": (56,)}


@each(("machine", "architecture"), [X86, ARM])
@each("namespaces", [False, True])
def test_a_mode_may_not_give_the_rights_of_an_owner(
    machine: str,
    architecture: int,
    namespaces: bool,  # noqa: FBT001
) -> None:
    in_namespaces = filter_in_namespaces(machine)
    without = filter_without_namespaces(machine, network=False, writes=True)
    program = in_namespaces if namespaces else without
    creating = {"O_CREAT": 0o100, "O_TMPFILE": 0o20200000, "with others": 0o100 | 0o2001}
    for number, position in SET_MODE[machine].items():
        for flags in creating.values() if number in OPENS[machine] else (0,):
            before = [7] * (position - 1) + [flags]
            for mode in (0o755, 0o1777, 0o7777 & ~0o6000, 0o100644):
                assert judge(program, architecture, number, *before, mode) == ALLOWED
            for mode in (0o4755, 0o2755, 0o6000, 0o7777, 0o104755, 0o4755 | 1 << 32):
                assert judge(program, architecture, number, *before, mode) == REFUSED
    for number in OPENS[machine]:
        # Without O_CREAT, the mode is whatever is left in a register.
        before = [7] * (SET_MODE[machine][number] - 2)
        assert judge(program, architecture, number, *before, 0o2001, 0o7777) == ALLOWED
    assert judge(program, architecture, 437) == REFUSED


def test_a_call_of_another_architecture_is_the_last_one() -> None:
    program = filter_without_namespaces("x86_64", network=True, writes=True)
    assert judge(program, I386, 3) == KILLED
    assert judge(program, X86[1], 0x40000000 | 41, 1) == KILLED
    with pytest.raises(KeyError):
        filter_without_namespaces("riscv64", network=False, writes=False)


@pytest.mark.parametrize(("machine", "architecture"), [X86, ARM])
def test_in_namespaces_only_what_they_do_not_hold_is_refused(
    machine: str, architecture: int
) -> None:
    socket, pair, ioctl, limit, chmod, read = CALLS[machine]
    program = filter_in_namespaces(machine)

    def said(number: int, *arguments: int) -> int:
        return judge(program, architecture, number, *arguments)

    assert {family for family in range(50) if said(socket, family) == ALLOWED} == {1, 2, 10, 16}
    allowed = [said(pair, 1, 2), said(limit, 7), said(chmod), said(read), said(ioctl, 0, 0x5401)]
    assert {*allowed} == {ALLOWED}
    assert (
        said(ioctl, 0, 0x5412) == said(425) == said(250 if machine == "x86_64" else 219) == REFUSED
    )
    assert filter_in_namespaces("riscv64") == b""


@needs_landlock
@pytest.mark.parametrize(
    "options",
    [
        ("--calls", "00" * 8), ("--calls", ""), ("--calls", "xyz"), ("--unknown", "/"), ("--read",),
    ],
)  # fmt: skip
def test_what_can_not_be_confined_is_not_run(tmp_path: Path, options: tuple[str, ...]) -> None:
    command = [*LAUNCHER, *options, "--", "touch", str(tmp_path / "ran")]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 126
    assert "nothing was run" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_the_options_of_the_launcher_are_read_in_pairs() -> None:
    wanted = Restrictions(
        ["--read", "/", "--write", "/w", "--hide", "/h", "--keep", "/k", "--read", "/s"]
    )
    assert (wanted.readable, wanted.writable) == (["/", "/s"], ["/w"])
    assert (wanted.hidden, wanted.unwritable) == (["/h"], ["/k"])


@needs_landlock
@pytest.mark.parametrize("attempt", ["reading", "writing", "signals", "sockets"])
def test_a_landlock_that_does_not_deny_is_no_sandbox(tmp_path: Path, attempt: str) -> None:
    """A kernel may claim to have Landlock and enforce nothing, so it is tested."""
    launcher = tmp_path / "launcher.py"
    text = Path(LAUNCHER[-1]).read_text()
    hides_nothing = ('"--hide": self.hidden', '"--hide": []')
    broken = {
        "reading": (hides_nothing,),
        "writing": (hides_nothing, ("root in restrictions.writable:", "root in ['/tmp']:")),
        "signals": (("_SCOPES)", "0)"),),
        "sockets": (("    _prctl(_SET_SECCOMP", "    0 and _prctl(_SET_SECCOMP"),),
    }[attempt]
    for sound, unsound in broken:
        assert sound in text
        text = text.replace(sound, unsound)
    launcher.write_text(text)
    found = try_out_landlock((*LAUNCHER[:-1], str(launcher)))
    assert found.sandbox is None
    assert found.problem.startswith("Landlock does not work here: it does not prevent")
    assert ("changing modes" if attempt == "sockets" else attempt) in found.problem


@needs_landlock
def test_by_landlock_every_command_that_writes_is_asked_about(tmp_path: Path) -> None:
    """It can't keep some files of a directory from being written, such as those of `.git`."""
    found = SandboxSearchResult(Landlock())
    sandboxes = Sandboxes(lambda: found, tmp_path, {})
    assert sandboxes.loosest_unasked(SandboxPolicy(), tmp_path) is SandboxLevel.READ_ONLY
    assert sandboxes.must_ask(SandboxPolicy())
    assert not sandboxes.must_ask(SandboxPolicy("read_only"))
    assert not sandboxes.must_ask(SandboxPolicy("full_access"))


@needs_landlock
def test_around_what_is_hidden_nothing_new_can_be_made_or_read(tmp_path: Path) -> None:
    """A directory that contains something hidden is allowed entry by entry."""
    root = tmp_path.resolve()
    for name in ("a", "secret", "b/secret"):
        (root / name).mkdir(parents=True)
        (root / name / "x").write_text(name)
    (root / "link").symlink_to("secret")
    may = SandboxProfile(
        root, writable=(root,), hidden=(root / "secret", root / "b" / "secret"),
        shown=(root / "b" / "secret",),
    )  # fmt: skip
    script = "cat a/x secret/x link/x b/secret/x; echo y >a/y; echo y >new; ls; echo y >b/secret/x"
    with Landlock().wrap(["sh", "-c", script], may) as wrapped:
        done = subprocess.run(
            wrapped.arguments, cwd=root, capture_output=True, check=False, text=True
        )
    assert done.stdout == "ab/secret"
    assert (root / "a" / "y").exists()
    assert not (root / "new").exists()
    assert (root / "b" / "secret" / "x").read_text() == "b/secret"


@needs_landlock
@pytest.mark.skipif(os.geteuid() != 0, reason="root has powers to lose")
def test_root_loses_what_would_undo_the_sandbox() -> None:
    with Landlock().wrap(
        ["grep", "-E", "Cap(Eff|Prm|Bnd|Amb)", "/proc/self/status"],
        SandboxProfile(Path("/"), writable=(Path("/nonexistent"),)),
    ) as wrapped:
        done = subprocess.run(wrapped.arguments, capture_output=True, check=True, text=True)
    kept = {line.split()[1] for line in done.stdout.splitlines()}
    assert kept == {"00000000000000cb", "0000000000000000"}


def test_this_machine_is_one_whose_calls_are_known() -> None:
    assert filter_without_namespaces(platform.machine(), network=False, writes=True)
