"""Third-party language servers: what they report after changes."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from lsp_servers.conftest import LanguageServerTestbed
from tiller_daemon.config import LanguageServer

TYPESCRIPT = {".ts": "typescript"}
BESIDE_PYTHON = Path(sys.executable).parent


def of_python(program: str, *arguments: str) -> LanguageServer:
    return LanguageServer(command=(program, *arguments))


def beside_python(program: str) -> str:
    path = shutil.which(program, path=str(BESIDE_PYTHON))
    assert path, f"{program} is in the group `dev`"
    return path


async def check_python(testbed: LanguageServerTestbed, *, finds_types: bool) -> None:
    assert await testbed.edit("good.py", "x: int = 1\n") == ""
    report = await testbed.edit("good.py", "x: int = 1\ny = nonsense +\n")
    assert report.startswith("New errors in good.py (")
    assert "2:" in report
    assert "error" in report
    assert await testbed.edit("good.py", "# moved\nx: int = 1\ny = nonsense +\n") == ""
    report = await testbed.edit("good.py", "x: int = 'one'\n")
    assert ("1:" in report) == finds_types
    assert await testbed.edit("good.py", "x: int = 1\n") == ""
    (testbed.workspace / "other.py").write_text("z = (\n")
    assert "other.py" in await testbed.request_diagnostics("other.py")
    assert "error" in await testbed.request_diagnostics("other.py")
    everything = await testbed.request_diagnostics()
    assert re.search(r"^good.py: \w+ found no problems", everything, re.MULTILINE)
    assert "other.py (" in everything
    assert testbed.running == 1


async def test_ruff(testbed: LanguageServerTestbed) -> None:
    await testbed.start(ruff=of_python(beside_python("ruff"), "server"))
    await check_python(testbed, finds_types=False)


@pytest.mark.peer
async def test_ty(testbed: LanguageServerTestbed, ty: str) -> None:
    await testbed.start(ty=of_python(ty, "server"))
    await check_python(testbed, finds_types=True)


async def test_basedpyright(testbed: LanguageServerTestbed) -> None:
    """The first start takes some seconds on a busy machine: it is asked for more patiently."""
    program = beside_python("basedpyright-langserver")
    await testbed.start(basedpyright=of_python(program, "--stdio"))
    (testbed.workspace / "good.py").write_text("x: int = 1\n")
    assert "found no problems" in await testbed.request_diagnostics("good.py")
    await check_python(testbed, finds_types=True)


@pytest.mark.peer
async def test_typescript(testbed: LanguageServerTestbed, typescript: str) -> None:
    await testbed.start(typescript=LanguageServer(command=(typescript, "--lsp", "--stdio")))
    (testbed.workspace / "tsconfig.json").write_text('{"compilerOptions": {"strict": true}}')
    (testbed.workspace / "lib.ts").write_text(
        "export function size(of: string) { return of.length; }\n"
    )
    (testbed.workspace / "app.ts").write_text("")
    assert "found no problems" in await testbed.request_diagnostics("app.ts")
    report = await testbed.edit("app.ts", 'import { size } from "./lib";\nsize(3);\n')
    assert "2:6 error: Argument of type 'number'" in report
    report = await testbed.edit("lib.ts", "export function size(of: number) { return of; }\n")
    assert report == ""
    assert "app.ts: typescript found no problems" in await testbed.request_diagnostics(), (
        "it sees what else has changed"
    )
    (testbed.workspace / "lib.ts").write_text("export const length = 1;\n")
    assert "app.ts (typescript):" in await testbed.request_diagnostics("app.ts"), (
        "by a command, too"
    )


@pytest.mark.peer
async def test_clangd(testbed: LanguageServerTestbed, clangd: str) -> None:
    """It publishes nothing for a text that it knows."""
    await testbed.start(clangd=LanguageServer(command=(clangd,)))
    assert await testbed.edit("one.h", "int one(void);\n") == ""
    main = '#include "one.h"\nint main(void) { return one(); }\n'
    assert "New errors" not in await testbed.edit("a.c", main)
    for _ in range(2):
        assert "a.c: clangd found no problems" in await testbed.request_diagnostics("a.c")
    (testbed.workspace / "one.h").write_text("int two(void);\n")
    assert "2:25 error: Call to undeclared function 'one'" in await testbed.request_diagnostics()
    (testbed.workspace / "one.h").write_text("int one(void);\n")
    assert "a.c: clangd found no problems" in await testbed.request_diagnostics("a.c")
    assert "3:17 error:" in await testbed.edit("a.c", f"{main}int three = {{1}} + ;\n")


@pytest.mark.peer
@pytest.mark.nightly
async def test_typescript_language_server(
    testbed: LanguageServerTestbed, typescript_language_server: str
) -> None:
    """It needs half a second for each change, and sends no versions."""
    slow = f"sleep 4; exec {shlex.quote(typescript_language_server)} --stdio"
    await testbed.start(tsls=LanguageServer(command=("/bin/sh", "-c", slow), files=TYPESCRIPT))
    assert "No diagnostics" in await testbed.edit("a.ts", "const z: number = 1;\n")
    assert "found no problems" in await testbed.request_diagnostics("a.ts")
    for wrong in ("true", "{}", "[]"):
        assert "1:7 error: Type" in await testbed.edit("a.ts", f"const z: number = {wrong};\n")
    assert "1:7 error: Type" in await testbed.request_diagnostics("a.ts")
    assert await testbed.edit("a.ts", "const z: number = 2;\n") == ""


@pytest.mark.peer
@pytest.mark.promise("B60")
async def test_servers_that_start_by_themselves_run_nothing_of_the_repository(
    testbed: LanguageServerTestbed, ty: str, typescript: str
) -> None:
    ran = testbed.workspace.parent / "ran"
    for place in (".venv/bin", "venv/bin", "node_modules/.bin"):
        directory = testbed.workspace / place
        directory.mkdir(parents=True)
        for name in ("python", "python3", "node", "ruff", "ty", "tsc"):
            (directory / name).write_text(f'#!/bin/sh\necho "$0" >> {ran}\n')
            (directory / name).chmod(0o755)
        (directory.parent / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    settings = 'venvPath = "."\nvenv = ".venv"\n'
    (testbed.workspace / "pyproject.toml").write_text(
        f'[tool.pyright]\n{settings}[tool.ty.environment]\npython = ".venv"\n'
    )
    plugins = '{"compilerOptions": {"plugins": [{"name": "evil"}]}}'
    (testbed.workspace / "tsconfig.json").write_text(plugins)
    evil = testbed.workspace / "node_modules" / "evil"
    evil.mkdir()
    (evil / "index.js").write_text(f'require("fs").writeFileSync("{ran}", "plugin");')
    await testbed.start(
        ty=of_python(ty, "server"),
        ruff=of_python(beside_python("ruff"), "server"),
        typescript=LanguageServer(command=(typescript, "--lsp", "--stdio")),
    )
    for name in ("a.py", "a.ts"):
        (testbed.workspace / name).write_text("")
        await testbed.request_diagnostics(name)
        assert await testbed.edit(name, "let x = (;\n")
    assert testbed.running == 3
    assert not ran.exists(), ran.read_text()
