"""No command in a sandbox makes a set-user-id or set-group-id file.

Whoever executes such a file outside gets the rights of the user, even of root, who ran the command.
"""

import platform
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from support.jail import MECHANISMS, WHO, Jail, Mechanism, jail_of, sandbox_for
from tiller_daemon.sandbox.level import SandboxLevel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="they are for Linux")

MAKE: Final = '''
import ctypes, mmap, os, platform, stat, struct, sys
how, path, mode = sys.argv[1], sys.argv[2], int(sys.argv[3], 8)
libc = ctypes.CDLL(None, use_errno=True)
name, is_arm = path.encode(), platform.machine() == "aarch64"
def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def old(number, *arguments):
    """A system call of a 32-bit program: push rbx; mov eax, ebx, ecx, edx; int 0x80; pop rbx"""
    low = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, 7)
    start = ctypes.addressof(ctypes.c_char.from_buffer(low))
    low[2048:2048 + len(name) + 1] = name + b"\\0"
    values = [number, start + 2048, *arguments, 0][:4]
    code = b"\\x53" + b"".join(
        bytes([which]) + struct.pack("=I", value)
        for which, value in zip((0xB8, 0xBB, 0xB9, 0xBA), values)
    ) + b"\\xcd\\x80\\x5b\\xc3"
    low[:len(code)] = code
    ctypes.CFUNCTYPE(ctypes.c_int)(start)()
def changed(change):
    with open(path, "w") as file:
        change(file.fileno())
match how:
    case "open":
        os.open(path, os.O_CREAT | os.O_WRONLY, mode)
    case "open in a directory":
        os.open(path, os.O_CREAT | os.O_RDWR | os.O_EXCL, mode, dir_fd=os.open(".", os.O_RDONLY))
    case "tmpfile":
        made = os.open(".", os.O_TMPFILE | os.O_RDWR, mode)
        libc.linkat(-100, b"/proc/self/fd/%d" % made, -100, name, 0x400)
    case "open of before":
        call(*(56, -100, name, 0o101, mode) if is_arm else (2, name, 0o101, mode))
    case "creat":
        call(85, name, mode)
    case "openat2":
        call(437, -100, name, struct.pack("=QQQ", 0o101, mode, 0), 24)
    case "mknod":
        os.mknod(path, stat.S_IFREG | mode)
    case "mknod of a pipe":
        os.mknod(path, stat.S_IFIFO | mode)
    case "mkdir":
        os.mkdir(path, mode)
    case "fchmod":
        changed(lambda file: os.fchmod(file, mode))
    case "fchmodat":
        changed(lambda file: os.chmod(path, mode, dir_fd=os.open(".", os.O_RDONLY)))
    case "fchmodat2":
        changed(lambda file: call(452, -100, name, mode, 0))
    case "chmod with more bits":
        changed(lambda file: call(*(53, -100) if is_arm else (90,), name, mode | 0o7000000))
    case "chmod in 32 bits":
        changed(lambda file: old(15, mode))
    case "open in 32 bits":
        old(5, 0o101, mode)
    case "chmod of x32":
        changed(lambda file: call(90 | 1 << 30, name, mode))
'''
MODES: Final = ("4755", "2755", "6777")
HOWS: Final = (
    "open", "open in a directory", "tmpfile", "open of before", "openat2", "mknod",
    "mknod of a pipe", "mkdir", "fchmod", "fchmodat", "fchmodat2", "chmod with more bits",
    *(
        ("creat", "chmod in 32 bits", "open in 32 bits", "chmod of x32")
        if platform.machine() == "x86_64" else ()
    ),
)  # fmt: skip

PROGRAMS: Final = {
    "chmod 4755": "touch {0}; chmod 4755 {0}",
    "chmod 2755": "touch {0}; chmod 2755 {0}",
    "chmod 6711": "touch {0}; chmod 6711 {0}",
    "chmod u+s": "touch {0}; chmod u+s {0}",
    "chmod g+s": "touch {0}; chmod g+s {0}",
    "chmod g+s of a directory": "mkdir {0}; chmod g+s {0}",
    "chmod -R": "mkdir {0}; cp /bin/true {0}/t; chmod -R u+s,g+s {0}",
    "chmod --reference": "touch {0}; chmod --reference=$W/source {0}",
    "chmod of a copied shell": "cp /bin/sh {0}; chmod 4755 {0}",
    "install -m 4755": "install -m 4755 /bin/true {0}",
    "install -d -m 2755": "install -d -m 2755 {0}",
    "mkdir -m 2755": "mkdir -m 2755 {0}",
    "cp -p": "cp -p $W/source {0}",
    "cp -a of a directory": "cp -a $W/sources {0}",
    "tar -xp": "mkdir {0}; tar -xpf $W/archive.tar -C {0}",
    "tar -x with a pipe": "mkdir {0}; tar -C $W -cf - source | tar -xpf - -C {0}",
    "python's tarfile": (
        '"$PYTHON" -c "import tarfile,sys;'
        " tarfile.open(sys.argv[1] + '/archive.tar').extractall(sys.argv[2],"
        " **({{'filter': 'fully_trusted'}} if hasattr(tarfile, 'data_filter') else {{}}))\""
        " $W {0}"
    ),
    "perl": "touch {0}; perl -e 'chmod 04755, $ARGV[0]' {0}",
}

PROBES: Final = {
    **PROGRAMS,
    **{
        f"{how} {mode}": f"\"$PYTHON\" $W/make.py '{how}' {{0}} {mode}"
        for how in HOWS
        for mode in MODES
    },
}

MAY_BE_MISSING: Final = (
    *(f"mkdir {mode}" for mode in MODES),
    "fchmodat2",
    "chmod in",
    "open in 32",
    "chmod of x",
)
"""What a kernel may lack. Every kernel ignores these bits of the mode of `mkdir`."""


@pytest.fixture
def jail() -> Generator[Jail]:
    with jail_of() as made:
        workspace = made.workspace
        (workspace / "make.py").write_text(MAKE)
        (workspace / "sources").mkdir()
        yield made


def prepare(jail: Jail, who: str) -> list[str]:
    """Put set-user-id files into the workspace; return the command prefix of the user."""
    prefix = jail.as_user(who)
    # Changing the owner clears the bits, so the files are made afterwards, by the user.
    script = (
        "cp /bin/true source; cp /bin/true sources/source; chmod 4755 source sources/source;"
        " tar -cf archive.tar source"
    )
    subprocess.run([*prefix, "sh", "-c", script], cwd=jail.workspace, check=True)
    return prefix


def script_of(probes: dict[str, str]) -> str:
    """All probes, each in its own shell, in the workspace and in the temporary directory."""
    lines = ["exec 2>/dev/null </dev/null", 'for place in "$W" "${TMPDIR:-/tmp}"; do']
    for number, probe in enumerate(probes.values()):
        lines.append(f'(cd "$place"; {probe.format(f"made-{number}")}\n)')
    return "\n".join([*lines, "done", "echo all were tried"])


def set_id_files(root: Path, probes: dict[str, str]) -> set[str]:
    """The probes that left a set-user-id or set-group-id file below `root`."""
    names, found = [*probes], set[str]()
    for path in root.rglob("*"):
        of_probe = next((part for part in path.parts if part.startswith("made-")), "")
        if of_probe and not path.is_symlink() and path.stat().st_mode & 0o6000:
            found.add(names[int(of_probe.removeprefix("made-"))])
    return found


@pytest.mark.parametrize("who", WHO[:1])
@pytest.mark.parametrize(
    "level", [SandboxLevel.READ_ONLY, SandboxLevel.BUILD, SandboxLevel.SESSION]
)
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_no_command_makes_a_set_id_file(
    jail: Jail, mechanism: Mechanism, level: SandboxLevel, who: str
) -> None:
    if mechanism != "bubblewrap" and level is SandboxLevel.BUILD:
        pytest.skip("a build is always asked about there")
    prefix = prepare(jail, who)
    found = sandbox_for(mechanism, prefix, jail.root)
    await jail.run(jail.sandbox(found, level), script_of(PROBES))
    assert "all were tried" in jail.said, jail.said
    assert set_id_files(jail.root, PROBES) == set()
    if level is not SandboxLevel.READ_ONLY:
        # The probes were able to make files, only not these.
        assert len(list(jail.workspace.glob("made-*"))) > len(PROGRAMS) / 2


@pytest.mark.parametrize("who", WHO)
@pytest.mark.nightly
async def test_every_probe_makes_one_where_nothing_refuses_it(jail: Jail, who: str) -> None:
    prefix = prepare(jail, who)
    variables = {"TMPDIR": str(jail.spill / "tmp")}
    await jail.run(None, script_of(PROBES), prefix=prefix, variables=variables)
    made = set_id_files(jail.root, PROBES)
    missing = PROBES.keys() - made - {"perl"}
    assert {one for one in missing if not one.startswith(MAY_BE_MISSING)} == set()


WORK: Final = """
set -e
umask 022
mkdir -p -m 755 bin lib; mkdir -m 1777 shared
printf 'all: out\\n\\ninstall: all\\n\\tinstall -d bin\\n\\tinstall -m 755 out bin/out\\n' >Makefile
printf 'out:\\n\\tprintf "#!/bin/sh\\\\necho ran\\\\n" >out; chmod +x out\\n' >>Makefile
make install >/dev/null && bin/out
install -m 644 Makefile lib/Makefile; install -m 0755 -D out deep/er/out
cp -p bin/out lib/out; cp -a bin copy; chmod -R u+rwX,go-w copy; chmod 400 lib/Makefile
tar -cf a.tar bin lib shared; mkdir x; tar -xpf a.tar -C x; test -x x/bin/out
tar -czf a.tgz bin; tar -xzf a.tgz -C x; test -k x/shared
ls -ld x/shared | grep -q '^drwxrwxrwt'
"$PYTHON" -c 'import os; os.open("f", os.O_CREAT | os.O_WRONLY, 0o755)'
"$PYTHON" -c 'import os; os.mkdir("d", 0o755); os.mkfifo("p"); os.chmod("d", 0o700)'
"$PYTHON" -c 'import os; os.open("Makefile", os.O_RDONLY, 0o6755)'
"$PYTHON" -c 'import shutil; shutil.copytree("bin", "tree"); shutil.unpack_archive("a.tar", "un")'
git add -A; git commit -qm work; git checkout -qb other; git clone -q . cloned; git gc -q
echo all of it
"""


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_usual_work_with_modes_is_not_disturbed(
    jail: Jail, mechanism: Mechanism, who: str
) -> None:
    prefix = jail.as_user(who)
    found = sandbox_for(mechanism, prefix, jail.root)
    await jail.run(jail.sandbox(found, SandboxLevel.SESSION, git_use="data"), WORK)
    assert "all of it" in jail.said, jail.said
    assert "ran\n" in jail.said
