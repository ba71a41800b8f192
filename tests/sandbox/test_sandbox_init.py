"""The first process of bubblewrap's namespace: a command can't touch it, but can debug its own."""

import os
import platform

import pytest

from support.sandboxes import PYTHON, WHO, place_of
from tiller_daemon.processes.command import run_command

NUMBERS = {
    "x86_64": {"ptrace": 101, "readv": 310, "writev": 311, "pidfd_open": 434, "getfd": 438},
    "aarch64": {"ptrace": 117, "readv": 270, "writev": 271, "pidfd_open": 434, "getfd": 438},
}

ATTEMPTS = """
import ctypes, os, signal, sys, time
ptrace, readv, writev, pidfd_open, getfd = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
long = ctypes.c_long
SEIZE, DETACH, INTERRUPT = 0x4206, 17, 0x4207

class Span(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]

here = ctypes.create_string_buffer(b"mine")
def memory(call, pid):
    ours = ctypes.byref(Span(ctypes.addressof(here), 4))
    return libc.syscall(long(call), long(pid), ours, long(1), ours, long(1), long(0))

def say(what, result):
    print(what, "yes" if result >= 0 else os.strerror(ctypes.get_errno()))

for name, pid in (("init", 1), ("init by more bits", 1 | 1 << 32)):
    say(f"{name} traced:", libc.syscall(long(ptrace), long(SEIZE), long(pid), long(0), long(0)))
    say(f"{name} read:", memory(readv, pid))
    say(f"{name} written:", memory(writev, pid))
pidfd = libc.syscall(long(pidfd_open), long(1), long(0))
say("init's descriptor:", libc.syscall(long(getfd), long(pidfd), long(0), long(0)))
for name in ("mem", "environ", "maps", "task/1/mem", "fd", "root", "cwd", "exe"):
    print("init's", name, os.path.lexists(f"/proc/1/{name}"))
print("init's entries", os.listdir("/proc/1"))
child = os.fork()
if child == 0:
    time.sleep(100)
say("child read:", memory(readv, child))
say("child written:", memory(writev, child))
say("child traced:", libc.syscall(long(ptrace), long(SEIZE), long(child), long(0), long(0)))
os.kill(child, signal.SIGKILL)
"""

UNMOUNT = "; umount /proc/1; umount -l /proc/1; unshare -Urm umount /proc/1; ls /proc/1/environ"


@pytest.mark.parametrize("who", WHO)
@pytest.mark.promise("B60")
async def test_the_sandboxs_own_process_can_not_be_traced_and_a_child_can(who: str) -> None:
    """Where no security module keeps a user's processes apart."""
    printed = b""

    async def receive(piece: bytes) -> None:
        nonlocal printed
        printed += piece

    with place_of(who) as place:
        (place.workspace / "attempts.py").write_text(ATTEMPTS)
        numbers = " ".join(map(str, NUMBERS[platform.machine()].values()))
        await run_command(
            ["bash", "-c", f"{PYTHON} attempts.py {numbers} {UNMOUNT}"],
            directory=place.workspace,
            variables={"PATH": os.environ["PATH"]},
            receive=receive,
            timeout_s=30,
            sandbox=place.sandbox("bubblewrap"),
        )
    lines = printed.decode().splitlines()
    said = dict(line.rsplit(": ", 1) for line in lines if ": " in line)
    refused = "Operation not permitted"
    for name in ("init", "init by more bits"):
        assert [said[f"{name} {what}"] for what in ("traced", "read", "written")] == [refused] * 3
    assert said["init's descriptor"] == "Function not implemented"
    assert "init's entries []" in lines
    assert not any("True" in line for line in lines)
    assert said["ls: cannot access '/proc/1/environ'"] == "No such file or directory"
    assert [said[f"child {what}"] for what in ("read", "written", "traced")] == ["yes"] * 3
