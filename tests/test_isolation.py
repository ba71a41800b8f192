"""Commands can't make the daemon load their code or start their programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.each import each
from support.installation import make_installation
from tiller_client.connecting import starting
from tiller_client.connecting.starting import DAEMON_COMMAND
from tiller_daemon.isolation import find_program, installation_paths, isolated, set_inside
from tiller_protocol.places import CONFIG_FILE, find_places

FOR_COMMANDS = """
    src project project/bin project/.venv/bin project/node_modules/.bin project/.tools/bin
    .local/share/clone/bin .local/shared .local/link-to-project .local/../project/bin .local/file
    .local/missing go/src/clone/bin"""

FOR_THE_DAEMON = """
    .local/bin bin .cargo/bin .pyenv/bin .pyenv/shims .nvm/versions/node/v1/bin .bun/bin go/bin
    sdk/go/bin miniconda3/bin Library/pnpm .local/link-to-cargo"""

LOADING = """
    LD_PRELOAD LD_AUDIT LD_DEBUG_OUTPUT DYLD_INSERT_LIBRARIES DYLD_FALLBACK_LIBRARY_PATH
    GCONV_PATH PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONUSERBASE PYTHONPYCACHEPREFIX
    PYTHONBREAKPOINT GIT_DIR GIT_EXEC_PATH GIT_CONFIG_GLOBAL GIT_CONFIG_COUNT GIT_SSH_COMMAND
    GIT_EXTERNAL_DIFF NODE_OPTIONS NODE_PATH PERL5LIB PERL5OPT RUBYLIB RUBYOPT LUA_PATH
    JAVA_TOOL_OPTIONS CLASSPATH BASH_ENV ENV BASH_FUNC_git%% OPENSSL_CONF"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with directories that contain a program `tool`, one of them writable for all."""
    monkeypatch.setenv("HOME", str(tmp_path))
    links = {".local/link-to-project": "project", ".local/link-to-cargo": ".cargo/bin"}
    for name in (*FOR_COMMANDS.split(), *FOR_THE_DAEMON.split()):
        if name not in links and name not in (".local/file", ".local/missing"):
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
            make_program(tmp_path / name / "tool")
    for name, target in links.items():
        (tmp_path / name).symlink_to(tmp_path / target)
    for name in ("project", ".local/share/clone", "go/src/clone", ".pyenv"):
        (tmp_path / name / ".git").mkdir()
    make_program(tmp_path / ".local/file")
    (tmp_path / ".local" / "shared").chmod(0o777)
    return tmp_path


def make_program(path: Path) -> None:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


@pytest.mark.parametrize("name", FOR_COMMANDS.split())
def test_the_daemon_finds_no_program_where_commands_may_write(home: Path, name: str) -> None:
    assert find_program("tool", f"{home / name}") is None


@pytest.mark.parametrize("entry", ["", ".", "bin", "./bin", "node_modules/.bin", "..", "~/bin"])
def test_the_daemon_finds_no_program_by_an_entry_that_is_not_absolute(
    home: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    monkeypatch.chdir(home / ".local")
    assert find_program("tool", entry) is None


@pytest.mark.parametrize("name", FOR_THE_DAEMON.split())
def test_the_daemon_finds_programs_that_are_installed_in_the_home(home: Path, name: str) -> None:
    found = find_program("tool", f"{home / 'project/bin'}:{home / name}")
    assert found
    assert Path(found).samefile(home / name / "tool")


def test_a_link_to_a_program_that_commands_may_write_is_not_found(home: Path) -> None:
    (home / "bin" / "other").symlink_to(home / "project" / "tool")
    assert find_program("other", str(home / "bin")) is None


def test_a_directory_that_is_made_later_is_not_trusted(home: Path) -> None:
    late = home / ".local" / "late"
    assert find_program("tool", str(late)) is None
    late.mkdir()
    make_program(late / "tool")
    assert find_program("tool", str(late)) is None


@each("name", LOADING.split())
def test_own_programs_get_no_variable_that_loads_code(name: str) -> None:
    assert name not in isolated({name: "/w/code", "PATH": os.defpath})


@each("name", ["HOME", "LANG", "XDG_CONFIG_HOME", "SSL_CERT_FILE", "OPENAI_API_KEY", "HTTPS_PROXY"])
def test_own_programs_get_other_variables(name: str) -> None:
    assert isolated({name: "/w/data"})[name] == "/w/data"


def test_own_programs_get_only_trusted_directories(home: Path) -> None:
    both = f"{home / 'project'}:{home / '.local/bin'}:.:"
    given = isolated({"PATH": both, "LD_LIBRARY_PATH": both, "DYLD_LIBRARY_PATH": "."})
    assert given == dict.fromkeys(("PATH", "LD_LIBRARY_PATH"), f"{home / '.local/bin'}")
    assert isolated({})["PATH"] == os.defpath


@each("name", ["LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "LD_AUDIT"])
def test_a_sandbox_starts_without_the_libraries_of_its_command(name: str) -> None:
    show = ("/bin/sh", "-c", f'printf %s "${name}"')
    value = "" if name == "LD_PRELOAD" else "/nowhere/a b"
    arguments, outside = set_inside(show, {"A": "1", name: value})
    assert outside == {"A": "1"}
    done = subprocess.run(arguments, env=outside, capture_output=True, check=True, text=True)
    assert done.stdout == value


PLANT = "import os, sys; open({mark!r}, 'a').write('planted')\n"

MODULES = """
    sitecustomize usercustomize graphlib re fnmatch functools pathlib argparse msgspec trio
    structlog pynng tiller_daemon tiller_protocol keyring sqlite3"""


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that planted code writes."""
    return tmp_path / "mark"


def plant(directory: Path, mark: Path, *modules: str) -> str:
    directory.mkdir(parents=True)
    for module in modules:
        (directory / f"{module}.py").write_text(PLANT.format(mark=str(mark)))
    return str(directory)


def test_tillerd_imports_no_module_of_the_pythonpath(tmp_path: Path, mark: Path) -> None:
    planted = plant(tmp_path / "planted", mark, *MODULES.split())
    done = subprocess.run(
        [*DAEMON_COMMAND, "--check-config"],
        cwd=planted,
        env={"PATH": os.defpath, "HOME": str(tmp_path), "PYTHONPATH": planted},
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not mark.exists()


@pytest.mark.parametrize("name", ["PYTHONUSERBASE", "PYTHONHOME", "PYTHONPATH", "PYTHONPLATLIBDIR"])
def test_tillerd_obeys_no_variable_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: Path, name: str
) -> None:
    """It is started as `tiller` does, by a Python that also has the user's packages."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = tmp_path / "planted" / "lib" / version / "site-packages"
    plant(packages, mark, *MODULES.split())
    (packages / "planted.pth").write_text("import sitecustomize\n")
    python = make_installation(tmp_path / "python")
    settings = tmp_path / "python" / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace("packages = false", "packages = true"))
    monkeypatch.setattr(starting, "DAEMON_COMMAND", (python, *DAEMON_COMMAND[1:]))
    environ = {"PATH": os.defpath, "HOME": str(tmp_path), "TILLER_HOME": str(tmp_path / "t")}
    places = find_places(environ, sys.platform, os.getuid())
    places.config.mkdir(parents=True)
    # With this configuration, the daemon ends after its imports.
    (places.config / CONFIG_FILE).write_text("nonsense = 1\n")
    value = packages if name == "PYTHONPATH" else tmp_path / "planted"
    begun = starting.DaemonStart(places, {**environ, name: str(value)})
    assert begun.process.wait() == 2
    assert not mark.exists()


def test_a_tillerd_that_is_started_otherwise_isolates_itself(tmp_path: Path, mark: Path) -> None:
    """Python reads PYTHONPATH before the daemon can start it again without."""
    planted = plant(tmp_path / "planted", mark, "graphlib", "argparse", "trio")
    done = subprocess.run(
        [sys.executable, "-m", "tiller_daemon", "--check-config"],
        cwd=planted,
        env={"PATH": ".", "HOME": str(tmp_path), "LD_LIBRARY_PATH": ".", "PYTHONPATH": planted},
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not mark.exists()


SHOW = """
import json, os, sys
sys.argv = ["tillerd"]
from tiller_daemon.isolation import environment_of_commands, isolate
isolate()
print(json.dumps([dict(os.environ), environment_of_commands()]))
"""


def test_commands_get_the_environment_in_which_tillerd_was_started(tmp_path: Path) -> None:

    started = {
        "PATH": f"{tmp_path}:/usr/bin:.",
        "HOME": str(tmp_path),
        "LD_LIBRARY_PATH": str(tmp_path),
        "PYTHONPATH": str(tmp_path),
        "GIT_AUTHOR_NAME": "me",
        "KEY": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env=started, capture_output=True, check=True, text=True
    )
    own, commands = json.loads(done.stdout)
    added = {"LC_CTYPE", "__CF_USER_TEXT_ENCODING"}
    assert {name: value for name, value in commands.items() if name not in added} == started
    assert {name: value for name, value in own.items() if name not in added} == {
        "PATH": "/usr/bin", "HOME": str(tmp_path), "KEY": "1",
    }  # fmt: skip


def test_the_installation_is_all_from_which_tillerd_runs_code(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    python = make_installation(tmp_path / "project" / ".venv", source)
    show = "from tiller_daemon.isolation import installation_paths as a; print(*a(), sep='\\n')"
    done = subprocess.run(
        [python, *DAEMON_COMMAND[1:3], "-c", show],
        env={"PATH": f"{tmp_path / 'project'}:/usr/bin", "HOME": str(tmp_path)},
        capture_output=True,
        check=True,
        text=True,
    )
    paths = [Path(line) for line in done.stdout.splitlines()]
    inside = ("bin/python", "bin/bwrap", "pyvenv.cfg", "lib/x/site-packages/trio/__init__.py")
    for needed in (source, Path("/usr/bin/git"), *(tmp_path / "project/.venv" / i for i in inside)):
        assert any(needed.is_relative_to(path) for path in paths), needed
    assert not any(path == tmp_path or path == tmp_path / "project" for path in paths)
    assert all(path.exists() and path == path.resolve() for path in installation_paths())
