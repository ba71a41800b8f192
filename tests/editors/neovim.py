"""Neovim as a process of its own, driven over its msgpack-rpc, with the plugin in it."""

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Self

import msgspec
import pyte
import trio

from support.daemon import Daemon
from support.frontend import TIMEOUT_S

PLUGIN = Path(__file__).resolve().parents[2] / "client" / "editors" / "nvim"

SETUP = f"""
vim.o.swapfile = false
require("tiller").setup({{ command = {{ "{sys.executable}", "-m", "tiller_client" }} }})
said = {{}}
vim.notify = function(message) table.insert(said, message) end
"""
"""Before each test: this checkout's `tiller`, and notifications kept where a test can read them."""

CHAT = (
    "table.concat(vim.api.nvim_buf_get_lines(require('tiller').chat.buffer, 0, -1, false), '\\n')"
)
"""The text of the chat, as a Lua expression."""

LINES, COLUMNS = 24, 80


def arguments() -> list[str]:
    """Neovim without the user's files, with the plugin."""
    return ["nvim", "--clean", "--cmd", f"set runtimepath^={PLUGIN}"]


def variables(daemon: Daemon) -> dict[str, str]:
    """Its environment; what it leaves behind when it is killed goes with the daemon's home."""
    return {**daemon.variables, "TERM": "xterm", "TMPDIR": str(daemon.home)}


@asynccontextmanager
async def a_neovim(daemon: Daemon, directory: Path) -> AsyncGenerator["Neovim"]:
    """A Neovim in a directory, ready for commands."""
    process = await trio.lowlevel.open_process(
        [*arguments(), "--headless", "--embed"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=directory,
        env=variables(daemon),
    )
    neovim = Neovim(process)
    try:
        await neovim.lua(SETUP)
        yield neovim
    finally:
        process.kill()
        await process.wait()
        await neovim.close()


class Neovim:
    """One request at a time; Neovim works on its events while it waits for what a test expects."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._numbers = count(1)

    async def command(self, line: str) -> None:
        """Run a command line."""
        await self.lua("vim.cmd(...)", line)

    async def keys(self, typed: str) -> None:
        """Type keys, in the notation of mappings."""
        await self.lua(
            "local keys = vim.api.nvim_replace_termcodes(..., true, true, true)\n"
            "vim.api.nvim_feedkeys(keys, 'mtx', false)",
            typed,
        )

    async def lua(self, code: str, *given: object) -> Any:
        """Run Lua and return its result."""
        return await self._request("nvim_exec_lua", code, list(given))

    async def until(self, condition: str) -> None:
        """Wait until a Lua expression is true; Neovim handles its events meanwhile."""
        wait = f"return vim.wait({TIMEOUT_S * 1000:.0f}, function() return {condition} end, 10)"
        if not await self.lua(wait):
            raise AssertionError(f"{condition}\nsaid: {await self.said()}\n{await self.chat()}")

    async def until_shown(self, text: str) -> None:
        """Wait until the chat shows a text."""
        await self.until(f"({CHAT}):find({_quoted(text)}, 1, true)")

    async def chat(self) -> str:
        """The text of the chat."""
        return await self.lua(f"return {CHAT}")

    async def chat_again(self) -> str:
        """The text of the chat after it has followed the session from its first event again."""
        await self.lua(
            "local tiller = require('tiller')\n"
            "local id = tiller.session.id\n"
            "tiller.rpc:unfollow(id)\n"
            "tiller.session = nil\n"
            "tiller.follow(id, tiller.directory)"
        )
        await self.until("require('tiller').is_live")
        return await self.chat()

    async def said(self) -> list[str]:
        """The notifications so far."""
        return await self.lua("return said")

    async def go_to(self, text: str) -> None:
        """Put the cursor of the chat on the last line with a text."""
        await self.lua(
            "local chat = require('tiller').chat.buffer\n"
            "vim.api.nvim_set_current_win(vim.fn.bufwinid(chat))\n"
            "vim.fn.cursor(vim.api.nvim_buf_line_count(chat), 1)\n"
            f"assert(vim.fn.search('\\\\V' .. {_quoted(text)}, 'bcW') > 0)"
        )

    async def quit(self) -> None:
        """Leave it, as a user does."""
        await self.lua("vim.schedule(function() vim.cmd('qall!') end)")
        with trio.fail_after(TIMEOUT_S):
            await self._process.wait()

    async def close(self) -> None:
        """Close its pipes."""
        assert self._process.stdin
        assert self._process.stdout
        await self._process.stdin.aclose()
        await self._process.stdout.aclose()

    async def _request(self, method: str, *given: object) -> Any:
        assert self._process.stdin
        message = [0, next(self._numbers), method, list(given)]
        with trio.fail_after(TIMEOUT_S + 5):
            await self._process.stdin.send_all(msgspec.msgpack.encode(message))
            _, _, error, result = await self._receive()
        assert error is None, error[1]
        return result

    async def _receive(self) -> Any:
        """The one message that is under way, which may come in pieces."""
        assert self._process.stdout
        data = b""
        while True:
            piece = await self._process.stdout.receive_some()
            assert piece, "Neovim has ended"
            data += piece
            try:
                return msgspec.msgpack.decode(data)
            except msgspec.DecodeError:  # not whole yet
                continue


class NeovimTerminal:
    """Neovim on a terminal of 80 columns and 24 lines; a context manager that ends it."""

    def __init__(self, daemon: Daemon, directory: Path) -> None:
        setup = f"lua {SETUP}".replace("\n", " ")
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (LINES, COLUMNS))
        self._process = subprocess.Popen(
            [*arguments(), "-c", setup],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=directory,
            env=variables(daemon),
            start_new_session=True,
        )
        os.close(slave)
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def wait_for(self, text: str) -> None:
        """Read until a row of the screen contains a text."""
        deadline = time.monotonic() + TIMEOUT_S
        while not any(text in row for row in self.rows()):
            left = max(deadline - time.monotonic(), 0)
            assert select.select([self._master], [], [], left)[0], self.rows()
            self._stream.feed(os.read(self._master, 65536))

    def rows(self) -> list[str]:
        """The screen, without blanks at the ends of rows."""
        return [row.rstrip() for row in self._screen.display]


def _quoted(text: str) -> str:
    return f"[==[{text}]==]"
