"""`demo`: a whole turn without a key or a network, in a temporary directory.

Daemon, sockets, tools and log are real; only the model's responses come from a script
(`demo_play`). The demo itself approves a command and steers the turn, visibly.
"""

import contextlib
import json
import os
import shlex
import shutil
import site
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Generator
from pathlib import Path

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.starting import wait_for_daemons
from tiller_client.console import Console, print_json
from tiller_client.demo_play import ANSWER, PROJECT, PROMPT, STEERING, configuration, script
from tiller_client.errors import STATUS_INTERRUPTED, TillerError
from tiller_client.following.snapshots import read_snapshot
from tiller_client.following.turn import status_of
from tiller_client.following.typed import prompt_for
from tiller_client.following.watch import Signals, Watch
from tiller_client.rendering.calls import INDENT, time_bar
from tiller_client.rendering.diff import diff_lines
from tiller_client.rendering.events import Renderer
from tiller_client.rendering.facts import Facts
from tiller_client.rendering.labels import call_label
from tiller_client.rendering.layout import indented
from tiller_client.rendering.text import cut, pad, seconds
from tiller_client.verbs.machine.daemon import stop
from tiller_protocol.answers import Created, Started
from tiller_protocol.events import Event, RequestOpened, ToolCallUpdated, TurnEnded
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import Answer, SessionCreate, UserInput
from tiller_protocol.places import CONFIG_FILE, find_places

NAME = "tiller demo"

PAUSE_S = 1.2
"""How long a question is on the screen before the demo answers it."""

BAR_CELLS = 30
LABEL_CELLS = 34
INHERITED_VARIABLES = ("LANG", "LC_ALL", "LC_CTYPE", "TMPDIR")
"""The only variables that the demo's processes inherit, so none with keys or settings."""


def run(arguments: Namespace) -> int:
    """Play the demo; returns 0 if its turn completed."""
    root = Path(tempfile.mkdtemp(prefix="tiller-demo-")).resolve()
    demo = _Demo(root, json=arguments.json)
    keeps_files = False
    try:
        status = demo.play()
        keeps_files = not arguments.remove
    finally:
        if not keeps_files:
            shutil.rmtree(root, ignore_errors=True)
    demo.print_location(keeps_files=keeps_files)
    return status


class _Demo:
    """One run of the demo. The directory `root` holds the project and the daemon's home."""

    def __init__(self, root: Path, *, json: bool) -> None:
        self._root = root
        self._project = root / "project"
        self._home = root / "home"
        self._json = json
        self._console = Console(json=json)
        self._renderer = Renderer(
            self._console.theme, self._console.width, wraps=self._console.terminal
        )
        self._steered = False

    def play(self) -> int:
        self._head("A small project with a failing test")
        _link_packages(self._root)
        self._make_project()
        self._note(f"in {self._project}, under git")
        with self._daemon() as connection:
            self._head("One turn of a scripted model: real daemon, sockets, tools and log")
            op = SessionCreate(str(self._project), model="demo/repair")
            session_id = connection.ask(op, Created).session_id
            ended = self._run_turn(connection, session_id)
            if ended is None:
                return STATUS_INTERRUPTED
            items = read_snapshot(connection.ask, session_id).items
        self._head("What git sees")
        self._show_diff()
        self._head("Where the time went")
        self._show_times([item for item in items if isinstance(item, ToolCall)])
        return status_of(ended.outcome)

    def print_location(self, *, keeps_files: bool) -> None:
        self._head("Files")
        if keeps_files:
            self._note(f"project  {self._project}")
            self._note(f"log      {self._home / 'state'}")
            home = shlex.quote(str(self._home))
            program = "tiller" if shutil.which("tiller") else Path(sys.executable).parent / "tiller"
            self._note(f"view the session:     TILLER_HOME={home} {program} show last")
            self._note(f"remove everything:    rm -r {shlex.quote(str(self._home.parent))}")
        else:
            self._note("all of the demo's files were removed")
        self._note("to use your own model:  tiller init")

    def _make_project(self) -> None:
        for name, text in PROJECT.items():
            path = self._project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._git("init", "--quiet", "--initial-branch=main")
        self._git("add", "--all")
        who = ("-c", "user.name=demo", "-c", "user.email=demo@localhost")
        self._git(*who, "commit", "--quiet", "--message", "Add a discount")

    def _git(self, *arguments: str) -> str:
        """Run git in the project, without the user's git configuration."""
        isolated = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        try:
            done = subprocess.run(
                ["git", *arguments],
                cwd=self._project,
                env=_environment(self._root) | isolated,
                capture_output=True,
                check=True,
                text=True,
            )
        except FileNotFoundError:
            raise TillerError("the demo needs git; install it and try again") from None
        except subprocess.CalledProcessError as error:
            raise TillerError(f"git {arguments[0]} failed: {error.stderr.strip()}") from None
        return done.stdout

    @contextlib.contextmanager
    def _daemon(self) -> Generator[DaemonConnection]:
        """Run a separate daemon for the demo, and stop it at the end."""
        environment = _environment(self._root) | {"TILLER_HOME": str(self._home)}
        places = find_places(environment, sys.platform, os.getuid())
        scripts = self._home / "scripts"
        scripts.mkdir(parents=True)
        (scripts / "repair.json").write_text(json.dumps(script()))
        places.config.mkdir(parents=True)
        (places.config / CONFIG_FILE).write_text(configuration(str(scripts)))
        try:
            with DaemonConnection(places, NAME, environ=environment) as connection:
                yield connection
        finally:
            stop(places, drain=False)
            wait_for_daemons(places)

    def _run_turn(self, connection: DaemonConnection, session_id: str) -> TurnEnded | None:
        """Run the turn and return its end; `None` if the user pressed Ctrl-C."""
        with (
            Signals("the demo was stopped") as signals,
            Watch(connection, session_id, signals) as watch,
        ):
            op = UserInput(session_id, PROMPT, delivery="start")
            turn_id = connection.ask(op, Started).turn_id
            while True:
                update = watch.wait(busy=True)
                if update.cut_off:
                    raise update.cut_off
                if update.interrupted:
                    return None
                for event in update.events:
                    self._show(event)
                    self._take_part(connection, session_id, event)
                    if isinstance(event.body, TurnEnded) and event.turn_id == turn_id:
                        self._console.bottom()
                        return event.body
                at_rest = self._renderer.at_line_start and not self._json
                self._console.bottom(self._renderer.moving_line(time.time()) if at_rest else "")

    def _take_part(self, connection: DaemonConnection, session_id: str, event: Event) -> None:
        """Act as the user: answer requests, and steer when the tests run for the first time."""
        match event.body:
            case RequestOpened(request):
                prompt = prompt_for(request, rejecting=False)
                self._console.bottom(prompt)
                time.sleep(PAUSE_S)
                self._note(
                    f"{prompt.strip()} y   (the demo answers this; any other frontend could, too)"
                )
                connection.submit(Answer(request.id, ANSWER))
            case ToolCallUpdated(state="running", title=title) if not self._steered and (
                "unittest" in title
            ):
                self._steered = True
                self._note(f"(the demo steers while the tests run: {STEERING!r})")
                connection.submit(UserInput(session_id, STEERING, delivery="steer"))
            case _:
                pass

    def _show(self, event: Event) -> None:
        if self._json:
            print_json(event)
        else:
            self._console.show(self._renderer.feed(event))

    def _show_diff(self) -> None:
        if not self._json:
            self._note(self._git("diff", "--stat").partition("\n")[0].strip())
            diff = self._git("diff", "--no-color", "--no-ext-diff", "--unified=0")
            lines = diff_lines(diff, self._console.width - INDENT, self._console.theme)
            self._console.line("\n".join(indented(lines, INDENT)))

    def _show_times(self, calls: list[ToolCall]) -> None:
        """Show each call as a bar from its start to its end."""
        facts = Facts()
        ran = [(span, call) for call in calls if (span := facts.span(call))]
        if not ran or self._json:
            return
        begin, end = min(span[0] for span, _ in ran), max(span[1] for span, _ in ran)
        for span, call in sorted(ran, key=lambda pair: pair[0]):
            label = pad(cut(call_label(call), LABEL_CELLS), LABEL_CELLS)
            bar = self._console.theme.line(time_bar(span, begin, end, BAR_CELLS))
            self._console.line(f"    {label} {bar} {seconds(span[1] - span[0])}")

    def _head(self, text: str) -> None:
        if not self._json:
            self._console.line(f"\n{self._console.theme.bold(text)}")

    def _note(self, text: str) -> None:
        if not self._json:
            self._console.line(f"  {text}")


def _link_packages(root: Path) -> None:
    """Make a link in `root` to the Python packages in the user's home, if there are any."""
    packages = Path(site.getuserbase(), "lib")
    if packages.is_dir() and packages.is_relative_to(Path.home()):
        link = root / packages.relative_to(Path.home())
        link.parent.mkdir(parents=True)
        link.symlink_to(packages)


def _environment(root: Path) -> dict[str, str]:
    """Return the environment for the demo's processes, in which `python3` is this Python.

    Their home is `root`, so that the demo leaves nothing in the user's home. Python packages that
    are installed in the user's home are still found, as `root` has a link to them.
    """
    inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    own = {"HOME": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    return inherited | own | {"PATH": path}
