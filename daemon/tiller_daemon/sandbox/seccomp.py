"""Seccomp filters, which refuse system calls that nothing else restricts.

The functions are pure: they return programs for the kernel's filter machine as bytes, which
bubblewrap or `launcher` installs. Sockets are restricted by their family alone, because a filter
sees numbers but no addresses. Calls that are not named here are allowed. A call of another
architecture (32 bits, x32) kills the process, as its numbers have other meanings.
"""

import functools
import struct
from collections.abc import Iterable, Iterator
from errno import EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT
from typing import Final, NamedTuple

ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's number for each `platform.machine()` (linux/audit.h)."""

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE = 0
_STREAM, _SEQPACKET, _TYPE_MASK = 1, 5, 0xF

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32: Final = 0x40000000
_ANY: Final = 0xFFFFFFFF


class _Call(NamedTuple):
    """The numbers of a system call on x86-64 and aarch64; None where it does not exist."""

    x86_64: int | None
    aarch64: int | None


class _Check(NamedTuple):
    """The values that an argument may have, or must not have if `forbidden`.

    `mask` selects the bits that are compared.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = _ANY
    forbidden: bool = False


_SOCKET, _SOCKETPAIR = _Call(41, 198), _Call(53, 199)
_IOCTL: Final = _Call(16, 29)

_NEVER: Final = (
    # io_uring would allow the calls that are refused here.
    _Call(425, 425),
    # The kernel's keyrings: add_key, request_key, keyctl.
    _Call(248, 217), _Call(249, 218), _Call(250, 219),
    # userfaultfd, which attacks on the kernel use to win races.
    _Call(323, 282),
    # clone3 and openat2, whose flags a filter can't see. Without them, programs call clone and
    # openat.
    _Call(435, 435), _Call(437, 437),
)  # fmt: skip
"""Calls whose effects no namespace isolates, or that no program needs."""

_CLONE, _UNSHARE = _Call(56, 220), _Call(272, 97)
_NEW_USER: Final = 0x10000000
"""The flag for a user namespace. In its own user namespace a command is root, and reaches parts of
the kernel that only root can reach: mounting, network filters, and their bugs."""

_PTRACE, _PIDFD_GETFD = _Call(101, 117), _Call(438, 438)
_PROCESS_VM: Final = (_Call(310, 270), _Call(311, 271))
"""Calls that read and write the memory of another process, whose pid is the first argument."""

_INIT: Final = 1
"""The first process in a namespace, which belongs to the sandbox."""

_SHARED: Final = (
    # Memory and messages shared by number (shm, sem, msg), and queues shared by name (mq).
    _Call(29, 194), _Call(30, 196), _Call(31, 195),
    _Call(64, 190), _Call(65, 193), _Call(66, 191), _Call(220, 192),
    _Call(68, 186), _Call(69, 189), _Call(70, 188), _Call(71, 187),
    _Call(240, 180), _Call(241, 181),
)  # fmt: skip
"""Calls for objects that programs share by a number or name. They are refused if no namespace
isolates the objects."""

_CHANGES_MODE: Final = (
    # chmod, fchmod, fchmodat, fchmodat2
    (_Call(90, None), 1), (_Call(91, 52), 1), (_Call(268, 53), 2), (_Call(452, 452), 2),
)  # fmt: skip
_CREATES: Final = (
    # creat, mknod, mknodat; mkdir ignores the bits of `_SET_ID`
    (_Call(85, None), 1), (_Call(133, None), 1), (_Call(259, 33), 2),
)  # fmt: skip
_OPENS: Final = ((_Call(2, None), 1), (_Call(257, 56), 2))
"""Calls that set a file's mode, each with the position of the mode. `open` and `openat` have the
position of their flags; the mode follows."""

_SET_ID: Final = 0o6000
"""The bits of a mode that give everyone who executes a file the rights of its owner or group."""

_CREATING: Final = 0o20000100
"""The flags O_CREAT and O_TMPFILE. `open` ignores the mode without them."""

_CHANGES: Final = (
    *(call for call, _ in _CHANGES_MODE),
    # chown, fchown, lchown, fchownat
    _Call(92, None), _Call(93, 55), _Call(94, None), _Call(260, 54),
    # utime, utimes, futimesat, utimensat
    _Call(132, None), _Call(235, None), _Call(261, None), _Call(280, 88),
    # setxattr and removexattr, each also with l, f and at; file_setattr
    _Call(188, 5), _Call(189, 6), _Call(190, 7), _Call(463, 463),
    _Call(197, 14), _Call(198, 15), _Call(199, 16), _Call(466, 466), _Call(469, 469),
)  # fmt: skip
"""Calls that change a file's metadata, which Landlock does not cover."""

_TERMINAL: Final = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which fake input to a terminal for any program that reads from it."""

_TYPE_OF_REQUEST: Final = 0xFF00
_REQUESTS: Final = (0x5400, 0x8900)
"""The types of `ioctl` requests for terminals, which pipes and files share, and for sockets."""

_READING_REQUESTS: Final = (0x80086601, 0x80087601, 0x801C581F, 0xC020660B, 2)
"""FS_IOC_GETFLAGS, FS_IOC_GETVERSION, FS_IOC_FSGETXATTR, FS_IOC_FIEMAP and FIGETBSZ, which `lsattr`
and `filefrag` use. Many other requests change a file or subvolume that was opened for reading.
Landlock does not cover them, and each file system has its own."""

_OF_PROCESSES: Final = (
    # sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr; and prlimit: a limit of
    # CPU time kills like a signal.
    _Call(142, 118), _Call(144, 119), _Call(203, 122), _Call(314, 274), _Call(302, 261),
)  # fmt: skip
"""Calls that change the process named by the first argument; 0 is the caller."""

_OF_GROUPS: Final = ((_Call(141, 140), 0), (_Call(251, 30), 1))
"""setpriority and ioprio_set, each with the value of the first argument that makes the second one
name a process. Other values make it name a group or a user."""


@functools.cache
def filter_in_namespaces(machine: str, *, sockets: bool = True) -> bytes:
    """Return the filter for a command in namespaces; empty if the machine is unknown.

    The filter covers what has no namespace: keys, an inherited terminal, and some socket families,
    one of which (vsock) leads out of a virtual machine. Without `sockets`, unix sockets can be
    created only in pairs. The first process of the namespace belongs to the sandbox. It can't be
    traced, and its descriptors and memory can't be accessed; the command's processes can be traced.
    """
    if machine not in ARCHITECTURES:
        return b""
    families = (UNIX, INET, INET6, NETLINK) if sockets else (INET, INET6, NETLINK)
    pair = (_Check(0, (UNIX,)), _Check(1, (_STREAM, _SEQPACKET), _TYPE_MASK))
    refusals = [
        *_refuse_netlink(machine),
        _refuse(_SOCKET, machine, EAFNOSUPPORT, _Check(0, families)),
        *_refuse_user_namespaces(machine),
        *(() if sockets else (_refuse(_SOCKETPAIR, machine, EAFNOSUPPORT, *pair),)),
        _refuse(_IOCTL, machine, EPERM, _Check(1, _TERMINAL, forbidden=True)),
        _refuse(_PTRACE, machine, EPERM, _Check(1, (_INIT,), forbidden=True)),
        *(_refuse(c, machine, EPERM, _Check(0, (_INIT,), forbidden=True)) for c in _PROCESS_VM),
        *(_refuse(call, machine, ENOSYS) for call in (*_NEVER, _PIDFD_GETFD)),
        *_refuse_set_id(machine),
    ]
    return _program(machine, refusals)


def filter_without_namespaces(machine: str, *, network: bool, writes: bool) -> bytes:
    """Return the filter for a command under Landlock; raises `KeyError` for an unknown machine.

    Without `network`, only socket pairs can be created; with `network`, internet sockets too. Unix
    sockets can never be created, as they could connect to any of the user's services. Without
    `writes`, file metadata can't be changed. A thread can set limits, priorities and processors
    only for itself.
    """
    families = (INET, INET6, NETLINK) if network else ()
    pair = (_Check(0, (UNIX,)), _Check(1, (_STREAM, _SEQPACKET), _TYPE_MASK))
    requests = [_Check(1, _TERMINAL, forbidden=True)]
    if not writes:
        requests.append(_Check(1, _REQUESTS, mask=_TYPE_OF_REQUEST))
    refusals = [
        *_refuse_netlink(machine),
        _refuse(_SOCKET, machine, EAFNOSUPPORT, _Check(0, families)),
        *_refuse_user_namespaces(machine),
        # A pair of datagram sockets is not safe: one end can be connected elsewhere.
        _refuse(_SOCKETPAIR, machine, EAFNOSUPPORT, *pair),
        *(() if writes else (_allow(_IOCTL, machine, _Check(1, _READING_REQUESTS)),)),
        _refuse(_IOCTL, machine, EPERM, *requests),
        *(_refuse(call, machine, EPERM, _Check(0, (0,))) for call in _OF_PROCESSES),
        *(_refuse(c, machine, EPERM, _Check(0, (n,)), _Check(1, (0,))) for c, n in _OF_GROUPS),
        *(_refuse(call, machine, ENOSYS) for call in (*_NEVER, *_SHARED)),
        *(_refuse(call, machine, EPERM) for call in (() if writes else _CHANGES)),
        *_refuse_set_id(machine),
    ]
    return _program(machine, refusals)


def _refuse_user_namespaces(machine: str) -> Iterator[bytes]:
    flag = _Check(0, (_NEW_USER,), mask=_NEW_USER, forbidden=True)
    return (_refuse(call, machine, EPERM, flag) for call in (_CLONE, _UNSHARE))


def _refuse_netlink(machine: str) -> Iterator[bytes]:
    """Refuse netlink sockets, except those with which programs list addresses and routes.

    Another refusal for the same call may follow, so the call's number is loaded again.
    """
    number = _SOCKET.x86_64 if machine == "x86_64" else _SOCKET.aarch64
    assert number is not None
    body = (
        _instruction(_LOAD, _ARGUMENTS_AT),
        _instruction(_EQUAL, NETLINK, no=3),
        _instruction(_LOAD, _ARGUMENTS_AT + 16),
        _instruction(_EQUAL, _NETLINK_ROUTE, yes=1),
        _instruction(_RETURN, _REFUSE | EPROTONOSUPPORT),
        _instruction(_LOAD, _NUMBER_AT),
    )
    yield from (_instruction(_EQUAL, number, no=len(body)), *body)


def _refuse_set_id(machine: str) -> Iterator[bytes]:
    """Refuse to make set-user-id and set-group-id files, which anyone could later execute outside.

    These refusals come last, as they allow the same calls with other modes.
    """
    for call, mode in (*_CHANGES_MODE, *_CREATES):
        yield _refuse(call, machine, EPERM, _Check(mode, (0,), _SET_ID))
    for call, flags in _OPENS:
        yield _allow(call, machine, _Check(flags, (0,), _CREATING))
        yield _refuse(call, machine, EPERM, _Check(flags + 1, (0,), _SET_ID))


def _program(machine: str, refusals: Iterable[bytes]) -> bytes:
    return b"".join((*_beginning(machine), *refusals, _instruction(_RETURN, _ALLOW)))


def _beginning(machine: str) -> Iterator[bytes]:
    yield _instruction(_LOAD, _ARCHITECTURE_AT)
    yield _instruction(_EQUAL, ARCHITECTURES[machine], yes=1)
    yield _instruction(_RETURN, _KILL)
    yield _instruction(_LOAD, _NUMBER_AT)
    if machine == "x86_64":
        yield _instruction(_AT_LEAST, _X32, no=1)
        yield _instruction(_RETURN, _KILL)


def _refuse(call: _Call, machine: str, errno: int, *checks: _Check) -> bytes:
    """Refuse a call unless its arguments pass all checks; any other call's number stays loaded.

    Only the lower half of an argument is checked, as the kernel takes these arguments as 32-bit
    numbers.
    """
    number = call.x86_64 if machine == "x86_64" else call.aarch64
    if number is None:
        return b""
    body = [step for check in checks for step in _steps(check, errno)]
    body.append(_instruction(_RETURN, _ALLOW if checks else _REFUSE | errno))
    return b"".join((_instruction(_EQUAL, number, no=len(body)), *body))


def _allow(call: _Call, machine: str, check: _Check) -> bytes:
    """Allow a call if its argument passes; otherwise the call's number is left loaded."""
    number = call.x86_64 if machine == "x86_64" else call.aarch64
    if number is None:
        return b""
    body = [
        _instruction(_LOAD, _ARGUMENTS_AT + 8 * check.argument),
        _instruction(_AND, check.mask),
    ]
    for left, value in zip(range(len(check.values) - 1, -1, -1), check.values, strict=True):
        # A match jumps over the remaining values, and the last mismatch jumps over the verdict.
        body.append(_instruction(_EQUAL, value, yes=left, no=not left))
    body += (_instruction(_RETURN, _ALLOW), _instruction(_LOAD, _NUMBER_AT))
    return b"".join((_instruction(_EQUAL, number, no=len(body)), *body))


def _steps(check: _Check, errno: int) -> Iterator[bytes]:
    refuse = _instruction(_RETURN, _REFUSE | errno)
    yield _instruction(_LOAD, _ARGUMENTS_AT + 8 * check.argument)
    yield _instruction(_AND, check.mask)
    if check.forbidden:
        for value in check.values:
            yield _instruction(_EQUAL, value, no=1)
            yield refuse
        return
    for left in range(len(check.values), 0, -1):
        # A match jumps over the remaining values and the refusal.
        yield _instruction(_EQUAL, check.values[-left], yes=left)
    yield refuse


def _instruction(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return one `struct sock_filter`; jumps are relative, in instructions."""
    return struct.pack("=HBBI", code, yes, no, value)
