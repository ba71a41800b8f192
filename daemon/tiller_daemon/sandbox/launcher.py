"""A separate program that gives up the rights that a command must not have, and then becomes it.

`landlock` starts it as `python -I -S launcher.py OPTION VALUE … -- COMMAND …`. The program imports
nothing of tiller, because each import adds a millisecond to every command. If it can't give up a
right, it reports that and does not run the command.
"""

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Sequence

EXIT_NO_SANDBOX = 126
"""The exit status of a shell for a command that it can't run."""

SCOPE_ALONE = "--scope"
"""The option to only call `scope`."""

LISTS = 1 << 3
"""The right to list a directory."""

READS = 1 << 0 | 1 << 2 | LISTS
"""The rights to execute, to read a file, and to list a directory (linux/landlock.h)."""

WRITES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14
"""The rights to write and truncate files, to remove and create anything but devices, and to move
between directories."""

DEVICE = 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
"""The rights to read, write and control a device."""

_EVERYTHING = (1 << 16) - 1
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_ABSTRACT_SOCKETS = 1 << 0
_SCOPES = _ABSTRACT_SOCKETS | 1 << 1
"""Restricts abstract sockets and signals to the processes of the sandbox."""

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _SECCOMP_FILTER = 38, 22, 2
_DROP_FROM_BOUNDS, _AMBIENT, _CLEAR_AMBIENT = 24, 47, 4
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES = 64

_OPEN_PATH = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC

_LIBC = ctypes.CDLL(None, use_errno=True)
_SYSCALL = _LIBC.syscall
_SYSCALL.restype = ctypes.c_long


class Restrictions:
    """What the command may do: the parsed options, with paths in the order they were given."""

    def __init__(self, options: Sequence[str]) -> None:
        """Parse pairs of option and value.

        `hidden` paths can't be read and `unwritable` paths can't be written, except for paths in
        them that are allowed.
        """
        self.readable: list[str] = []
        self.writable: list[str] = []
        self.hidden: list[str] = []
        self.unwritable: list[str] = []
        self.calls = b""
        self.capabilities = 0
        self.temporary = ""
        for name, value in zip(options[::2], options[1::2], strict=True):
            match name:
                case "--calls":
                    self.calls = bytes.fromhex(value)
                case "--capabilities":
                    self.capabilities = int(value)
                case "--temporary":
                    self.temporary = value
                case _:
                    {
                        "--read": self.readable,
                        "--write": self.writable,
                        "--hide": self.hidden,
                        "--keep": self.unwritable,
                    }[name].append(value)


def main(arguments: Sequence[str]) -> None:
    """Confine this process and run the command in it; does not return."""
    end = arguments.index("--")
    command = list(arguments[end + 1 :])
    try:
        if arguments[:end] == [SCOPE_ALONE]:
            scope()
        else:
            restrictions = Restrictions(arguments[:end])
            confine(restrictions)
            if restrictions.temporary:
                os.environ["TMPDIR"] = restrictions.temporary
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"tiller: the sandbox can't be set up, so nothing was run: {error}\n")
        sys.exit(EXIT_NO_SANDBOX)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the purpose of this program
    except OSError as error:
        sys.stderr.write(f"tiller: {command[0]} could not be run: {error}\n")
        sys.exit(EXIT_NO_SANDBOX)


def scope() -> None:
    """Keep this process and its descendants from the abstract sockets of other processes."""
    rules = struct.pack("=QQQ", 0, 0, _ABSTRACT_SOCKETS)
    ruleset = _call(_CREATE_RULESET, ctypes.c_char_p(rules), ctypes.c_size_t(len(rules)), 0)
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def version() -> int:
    """Return the Landlock version of the kernel; 0 without Landlock."""
    return max(_SYSCALL(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1)), 0)


def confine(restrictions: Restrictions) -> None:
    """Limit this process and its descendants to what the restrictions allow."""
    ruleset = _make_ruleset(restrictions)
    for descriptor in range(3):
        # The command inherits this terminal.
        if os.isatty(descriptor):
            _grant(ruleset, os.ttyname(descriptor), DEVICE, ())
    _restrict(ruleset, restrictions.capabilities, restrictions.calls)


def _make_ruleset(restrictions: Restrictions) -> int:
    """Return a descriptor of Landlock's rules for reading and writing."""
    rules = struct.pack("=QQQ", _EVERYTHING, 0, _SCOPES)
    ruleset = _call(_CREATE_RULESET, ctypes.c_char_p(rules), ctypes.c_size_t(len(rules)), 0)
    hidden = restrictions.hidden
    folders = [path for path in hidden if os.path.isdir(path)]  # noqa: PTH112 - no imports
    for root in restrictions.readable:
        _grant(ruleset, root, READS, hidden)
        # Directories with hidden files can still be listed; hidden directories can't.
        _grant(ruleset, root, LISTS, folders)
    for root in restrictions.writable:
        _grant(ruleset, root, READS, hidden)
        _grant(ruleset, root, WRITES, [*hidden, *restrictions.unwritable])
    for name in _DEVICES:
        _grant(ruleset, f"/dev/{name}", DEVICE, ())
    return ruleset


def _restrict(ruleset: int, capabilities: int, calls: bytes) -> None:
    """Limit this process to the ruleset, and its system calls to those that the filter allows."""
    _give_up_capabilities(capabilities)
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _call(_RESTRICT_SELF, ruleset, 0)
    program = ctypes.create_string_buffer(calls, len(calls))
    # struct sock_fprog: the number of instructions, and their address.
    filters = struct.pack("@HP", len(calls) // 8, ctypes.addressof(program))
    _prctl(_SET_SECCOMP, _SECCOMP_FILTER, ctypes.c_char_p(filters))


def _grant(
    ruleset: int, path: str, rights: int, holes: Sequence[str], above: int | None = None
) -> None:
    """Allow `rights` for a directory or file, except for `holes`; ignore a missing path.

    A right for a directory covers everything in it. So a directory with a hole gets no rights
    itself, but each of its present entries does. Entries that are created later get none. An entry
    is opened relative to its directory `above`, so that no new link on the way is followed.
    """
    name = path if above is None else path.rpartition("/")[2]
    try:
        opened = os.open(name, _OPEN_PATH, dir_fd=above)
    except OSError:
        return
    try:
        inner = [hole for hole in holes if path == "/" or hole.startswith(path + "/")]
        if inner:
            for entry in _names(opened):
                child = f"{path.rstrip('/')}/{entry}"
                if child not in inner:
                    _grant(ruleset, child, rights, inner, opened)
            return
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            rights &= _OF_FILES
        if rights:
            rule = struct.pack("=Qi", rights, opened)
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.c_char_p(rule), 0)
    finally:
        os.close(opened)


def _names(directory: int) -> list[str]:
    try:
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return []
    try:
        return os.listdir(readable)  # noqa: PTH208 - by descriptor
    finally:
        os.close(readable)


def _give_up_capabilities(kept: int) -> None:
    """Drop root's capabilities except for those whose bits are set in `kept`."""
    _prctl(_AMBIENT, _CLEAR_AMBIENT, 0, 0, 0)
    header = ctypes.c_char_p(struct.pack("=Ii", _CAPABILITY_VERSION, 0))
    current = ctypes.create_string_buffer(24)
    if _LIBC.capget(header, current):
        raise _problem("capget")
    if os.geteuid() == 0:
        for number in range(_CAPABILITIES):
            if not kept >> number & 1 and _LIBC.prctl(_DROP_FROM_BOUNDS, number, 0, 0, 0):
                break  # Either no more exist, or executed programs can't give this process any.
    else:
        kept = 0
    low, high = kept & 0xFFFFFFFF, kept >> 32
    effective, permitted, _, effective_high, permitted_high, _ = struct.unpack("=6I", current.raw)
    left = struct.pack(
        "=6I", effective & low, permitted & low, 0, effective_high & high, permitted_high & high, 0
    )
    if _LIBC.capset(header, ctypes.c_char_p(left)):
        raise _problem("capset")


def _prctl(option: int, *values: object) -> None:
    given = [ctypes.c_ulong(one) if isinstance(one, int) else one for one in values]
    padding = [ctypes.c_ulong(0)] * (4 - len(given))
    if _LIBC.prctl(ctypes.c_int(option), *given, *padding):
        raise _problem(f"prctl {option}")


def _call(number: int, *values: object) -> int:
    done = _SYSCALL(ctypes.c_long(number), *values)
    if done < 0:
        raise _problem(f"system call {number}")
    return done


def _problem(what: str) -> OSError:
    errno = ctypes.get_errno()
    return OSError(errno, f"{what}: {os.strerror(errno)}")


if __name__ == "__main__":
    main(sys.argv[1:])
