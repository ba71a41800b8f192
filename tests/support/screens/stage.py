"""A stage that plays states of `tiller chat`: a scripted model, a repository, a terminal.

Tests look at the final screen, and `scripts/chat_screens.py` draws it.
"""

import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import trio

from e2e.gates import Gate
from support.chat import ChatTerminal
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_daemon.models.scripted import HangPart, Part, ScriptedUsage, ScriptStep

MODEL = "qwen3-coder"

CONFIG = f"""\
model = "local/{MODEL}"
sandbox = {{ mode = "full_access" }}

[providers.local]
api = "scripted"
scripts = "../scripts"

[models."local/{MODEL}"]
context_window = 128_000
variants.deep = {{ effort = "high" }}
variants.quick = {{ effort = "low" }}

[models."local/gpt-oss-120b"]
context_window = 128_000

[models."local/devstral-small"]
context_window = 64_000
"""

READY = "write a message"
BUSY = "steer with Enter, queue with Tab"
ANSWERABLE = "a letter chooses, Enter answers"

FILES = {
    "README.md": "# Accounts\n\nUsers and their sessions.\n",
    "accounts/session.py": """\
class Sessions:
    index = {}

    def login(self, name):
        self.index[name] = Session(name)
        return self.index[name]

    def find(self, name):
        return self.index[name.lower()]
""",
    "accounts/users.py": "class User:\n    name: str\n",
    "tests/test_login.py": """\
def test_login():
    login("Ann")
    assert find("Ann").name == "ann"
""",
    "tests/run": """\
cat <<'END'
tests/test_login.py F

    def test_login():
        login("Ann")
>       assert find("Ann").name == "ann"
E       KeyError: 'ann'

1 failed in 0.12s
END
exit 1
""",
}

GIT = ("git", "-c", "user.name=Ann", "-c", "user.email=ann@example.invalid", "-c", "gc.auto=0")


class Stage:
    """Plays states, one after another, each in a new chat; the caller closes the stage."""

    def __init__(
        self,
        daemon: Daemon,
        workspace: Path,
        nursery: trio.Nursery,
        size: tuple[int, int] = (80, 24),
        **variables: str,
    ) -> None:
        self.daemon = daemon
        self.workspace = workspace
        self.size = size
        self.variables = variables
        self.chats: list[ChatTerminal] = []
        self._nursery = nursery

    @property
    def columns(self) -> int:
        """The columns of the terminal."""
        return self.size[0]

    @property
    def shown(self) -> ChatTerminal:
        """The chat to look at."""
        return self.chats[-1]

    async def chat(
        self,
        *steps: ScriptStep,
        arguments: tuple[str, ...] = ("--approve", "always"),
        side_steps: dict[str, ScriptStep] | None = None,
        **variables: Any,
    ) -> ChatTerminal:
        """Open a new session whose model says this; return when the chat accepts input."""
        self.daemon.play(MODEL, *steps, **(side_steps or {}))
        chat = self.open("chat", "-C", str(self.workspace), *arguments, **variables)
        await chat.sees(READY, f"{MODEL} · build")
        return chat

    def open(self, *arguments: str, **variables: Any) -> ChatTerminal:
        """Start `tiller` on a terminal."""
        more: dict[str, Any] = self.variables | variables
        self.chats.append(ChatTerminal.start(self.daemon, *arguments, size=self.size, **more))
        return self.shown

    async def asked(self, *steps: ScriptStep, prompt: str, **more: Any) -> ChatTerminal:
        """Open a new session and send a prompt."""
        chat = await self.chat(*steps, **more)
        chat.press(f"{prompt}\r")
        return chat

    def gate(self, name: str = "gate") -> Gate:
        """Return a gate in the workspace, at which a command waits."""
        (self.workspace / name).unlink(missing_ok=True)
        return Gate(self.workspace, name)

    async def elsewhere(self, name: str) -> Frontend:
        """Connect another frontend to the daemon."""
        return await Frontend.connect(self.daemon, self._nursery, name)

    def close(self) -> None:
        """End every chat."""
        for chat in self.chats:
            chat.close()


class State(NamedTuple):
    """Something that a person can see."""

    name: str
    about: str
    """One sentence for the page that shows the state."""
    play: Callable[[Stage], Awaitable[None]]
    """Plays the state; returns when the terminal shows it, and fails if it does not."""
    alone: bool = False
    """Whether the state needs a separate daemon."""
    main: bool = False
    """Whether the state is drawn in every size and palette."""


def usage(tokens: int = 14_000) -> ScriptedUsage:
    """What a response costs."""
    return ScriptedUsage(input_tokens=tokens, output_tokens=240)


def says(*parts: Part, tokens: int = 14_000) -> ScriptStep:
    """A response with its cost."""
    return ScriptStep(parts=parts, usage=usage(tokens))


def stays(*parts: Part) -> ScriptStep:
    """A response that never ends."""
    return ScriptStep(parts=(*parts, HangPart()))


def make_workspace(workspace: Path) -> None:
    """A repository with a few files and one commit."""
    for name, content in FILES.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "Begin")):
        subprocess.run([*GIT, *arguments], cwd=workspace, check=True)
