"""The extension for VS Code in node, with stand-ins for the editor and for a document."""

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from support.daemon import Daemon
from support.frontend import TIMEOUT_S
from support.typescript import compile_ts, install

CLIENT = Path(__file__).resolve().parents[2] / "client"
EXTENSION = CLIENT / "editors" / "vscode"
STAND_INS = Path(__file__).with_name("vscode")

TILLER = (sys.executable, "-m", "tiller_client")

Object = dict[str, Any]


def build(directory: Path) -> Path:
    """Compile the extension with nothing but TypeScript; returns where its modules are."""
    package = directory / "client" / "typescript"
    install(CLIENT / "typescript", package)
    extension = directory / "client" / "editors" / "vscode"
    install(EXTENSION, extension, "--omit=dev")
    source = extension / "src"
    out = directory / "out"
    # Types are another test's concern: those of the editor need one more package.
    options = ["--noCheck", "--target", "es2022", "--module", "esnext"]
    options += ["--moduleResolution", "bundler"]
    roots = ("--rootDir", directory / "client", "--outDir", out)
    compile_ts(package, *options, *roots, source / "extension.ts", source / "page" / "page.ts")
    shutil.move(extension / "node_modules", out / "node_modules")
    stand_in(out)
    return out


def stand_in(directory: Path) -> None:
    """Put the programs of these tests into a directory, and the stand-in for the editor."""
    shutil.copytree(STAND_INS, directory, dirs_exist_ok=True)
    (directory / "package.json").write_text('{"type": "module"}')
    editor = directory / "node_modules" / "vscode"
    editor.mkdir(parents=True)
    (editor / "package.json").write_text('{"type": "module", "main": "index.js"}')
    (directory / "vscode.mjs").rename(editor / "index.js")


@asynccontextmanager
async def a_code(
    daemon: Daemon,
    built: Path,
    directory: Path,
    command: Sequence[str] = TILLER,
    extension: Path | None = None,
) -> AsyncGenerator["Code"]:
    """An activated extension in a window with one folder, whose view is open."""
    source = built / "editors" / "vscode" / "src"
    program = [built / "drive.mjs", extension or source / "extension.js", source / "page/page.js"]
    process = await trio.lowlevel.open_process(
        ["node", *map(str, program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=built,
        env=daemon.variables,
    )
    code = Code(process)
    try:
        await code.do("user", {"folders": [str(directory)]})
        await code.do("configure", {"command": list(command)})
        await code.do("activate")
        await code.do("view")
        yield code
        await code.leave()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await code.close()


class Code:
    """One action at a time. Everything that the extension did is in `seen`, in order."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._rest = b""
        self.seen: list[Object] = []

    async def do(self, name: str, given: object = None) -> Any:
        """Do something as the editor, its user or the page; returns the result."""
        begin = len(self.seen)
        await self._send({name: given})
        answer = await self._until(lambda one: "done" in one or "failed" in one, begin)
        assert "failed" not in answer, answer
        return answer["done"]

    async def command(self, name: str, *answers: str) -> None:
        """Run a command, and give these answers to what it asks."""
        await self.do("user", {"answers": list(answers)})
        await self.do("command", f"tiller.{name}")

    async def click(self, text: str, *answers: str) -> None:
        """Press the last button or line that says this, and answer what it asks."""
        await self.do("user", {"answers": list(answers)})
        await self.do("click", text)

    async def type(self, text: str, **keys: bool) -> None:
        """Type a message on the page, and Enter."""
        await self.do("type", {"text": text, **keys})

    async def until_shown(self, text: str) -> str:
        """Wait until the page shows a text; returns all of it."""
        with trio.move_on_after(TIMEOUT_S):
            while text not in self.screen:
                await self._read()
            return self.screen
        raise AssertionError(f"{text} is not in:\n{self.screen}\n{self.reports('error')}")

    async def until_gone(self, text: str) -> None:
        """Wait until the page no longer shows a text."""
        with trio.fail_after(TIMEOUT_S):
            while text in self.screen:
                await self._read()

    async def until_report(self, kind: str, number: int = 1) -> Any:
        """Wait for the `number`-th thing of a kind that the extension did."""
        with trio.fail_after(TIMEOUT_S):
            while len(self.reports(kind)) < number:
                await self._read()
        return self.reports(kind)[number - 1]

    def reports(self, kind: str) -> list[Any]:
        """What the extension did, of one kind."""
        return [one[kind] for one in self.seen if kind in one]

    @property
    def screen(self) -> str:
        """What the page shows now."""
        return next(iter(reversed(self.reports("screen"))), "")

    @property
    def bar(self) -> str:
        """What the status bar shows now."""
        return self.reports("bar")[-1]

    async def again(self) -> str:
        """What the page shows when the view was closed and is opened again."""
        begin = len(self.reports("screen"))
        await self.do("view")
        await self.until_report("screen", begin + 1)
        return self.screen

    async def leave(self) -> None:
        """Close the window."""
        assert self._process.stdin
        await self._process.stdin.aclose()
        with trio.fail_after(TIMEOUT_S):
            assert await self._process.wait() == 0

    async def close(self) -> None:
        """Close its pipes."""
        assert self._process.stdin
        assert self._process.stdout
        await self._process.stdin.aclose()
        await self._process.stdout.aclose()

    async def _send(self, line: Object) -> None:
        assert self._process.stdin
        await self._process.stdin.send_all(json.dumps(line).encode() + b"\n")

    async def _until(self, wanted: Callable[[Object], bool], begin: int) -> Object:
        with trio.fail_after(TIMEOUT_S):
            while True:
                for one in self.seen[begin:]:
                    if wanted(one):
                        return one
                await self._read()

    async def _read(self) -> None:
        assert self._process.stdout
        piece = await self._process.stdout.receive_some()
        assert piece, "the extension has ended"
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self.seen += [json.loads(line) for line in lines]
