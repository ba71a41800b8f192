"""Servers that nobody here wrote: a change, and what they say of it."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from lsp_servers.conftest import Room
from tiller_daemon.config import LanguageServer

BESIDE_PYTHON = Path(sys.executable).parent


def of_python(program: str, *arguments: str) -> LanguageServer:
    return LanguageServer(command=(program, *arguments))


def beside_python(program: str) -> str:
    found = shutil.which(program, path=str(BESIDE_PYTHON))
    assert found, f"{program} is in the group `dev`"
    return found


async def check_python(room: Room, *, finds_types: bool) -> None:
    assert await room.edit("good.py", "x: int = 1\n") == ""
    told = await room.edit("good.py", "x: int = 1\ny = nonsense +\n")
    assert told.startswith("New errors in good.py (")
    assert "2:" in told
    assert "error" in told
    assert await room.edit("good.py", "# moved\nx: int = 1\ny = nonsense +\n") == ""
    told = await room.edit("good.py", "x: int = 'one'\n")
    assert ("1:" in told) == finds_types
    assert await room.edit("good.py", "x: int = 1\n") == ""
    (room.workspace / "other.py").write_text("z = (\n")
    assert "other.py" in await room.look("other.py")
    assert "error" in await room.look("other.py")
    everything = await room.look()
    assert re.search(r"^good.py: \w+ found no problems", everything, re.MULTILINE)
    assert "other.py (" in everything
    assert room.running == 1


async def test_ruff(room: Room) -> None:
    await room.start(ruff=of_python(beside_python("ruff"), "server"))
    await check_python(room, finds_types=False)


@pytest.mark.peer
async def test_ty(room: Room, ty: str) -> None:
    await room.start(ty=of_python(ty, "server"))
    await check_python(room, finds_types=True)


async def test_basedpyright(room: Room) -> None:
    """The first start takes some seconds on a busy machine: it is asked for more patiently."""
    program = beside_python("basedpyright-langserver")
    await room.start(basedpyright=of_python(program, "--stdio"))
    (room.workspace / "good.py").write_text("x: int = 1\n")
    assert "found no problems" in await room.look("good.py")
    await check_python(room, finds_types=True)


@pytest.mark.peer
async def test_typescript(room: Room, typescript: str) -> None:
    await room.start(typescript=LanguageServer(command=(typescript, "--lsp", "--stdio")))
    (room.workspace / "tsconfig.json").write_text('{"compilerOptions": {"strict": true}}')
    (room.workspace / "lib.ts").write_text(
        "export function size(of: string) { return of.length; }\n"
    )
    (room.workspace / "app.ts").write_text("")
    assert "found no problems" in await room.look("app.ts")
    told = await room.edit("app.ts", 'import { size } from "./lib";\nsize(3);\n')
    assert "2:6 error: Argument of type 'number'" in told
    told = await room.edit("lib.ts", "export function size(of: number) { return of; }\n")
    assert told == ""
    assert "app.ts: typescript found no problems" in await room.look(), (
        "it sees what else has changed"
    )
    (room.workspace / "lib.ts").write_text("export const length = 1;\n")
    assert "app.ts (typescript):" in await room.look("app.ts"), "by a command, too"


@pytest.mark.peer
async def test_b60_servers_that_start_by_themselves_run_nothing_of_the_repository(
    room: Room, ty: str, typescript: str
) -> None:
    ran = room.workspace.parent / "ran"
    for place in (".venv/bin", "venv/bin", "node_modules/.bin"):
        directory = room.workspace / place
        directory.mkdir(parents=True)
        for name in ("python", "python3", "node", "ruff", "ty", "tsc"):
            (directory / name).write_text(f'#!/bin/sh\necho "$0" >> {ran}\n')
            (directory / name).chmod(0o755)
        (directory.parent / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    settings = 'venvPath = "."\nvenv = ".venv"\n'
    (room.workspace / "pyproject.toml").write_text(
        f'[tool.pyright]\n{settings}[tool.ty.environment]\npython = ".venv"\n'
    )
    plugins = '{"compilerOptions": {"plugins": [{"name": "evil"}]}}'
    (room.workspace / "tsconfig.json").write_text(plugins)
    evil = room.workspace / "node_modules" / "evil"
    evil.mkdir()
    (evil / "index.js").write_text(f'require("fs").writeFileSync("{ran}", "plugin");')
    await room.start(
        ty=of_python(ty, "server"),
        ruff=of_python(beside_python("ruff"), "server"),
        typescript=LanguageServer(command=(typescript, "--lsp", "--stdio")),
    )
    for name in ("a.py", "a.ts"):
        (room.workspace / name).write_text("")
        await room.look(name)
        assert await room.edit(name, "let x = (;\n")
    assert room.running == 3
    assert not ran.exists(), ran.read_text()
