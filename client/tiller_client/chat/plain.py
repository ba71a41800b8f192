"""`tiller chat --plain`: a session line by line, for screen readers and simple terminals.

Each line is written once and whole, and nothing is redrawn. A typed line answers the open request
if there is one; else it is a command, or input for the model.
"""

from tiller_client.chat.attaching import attachments
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.console import Console
from tiller_client.errors import UsageError
from tiller_client.following.interactive import InteractiveSession
from tiller_client.following.watch import Signals, Watch
from tiller_client.rendering.wrap import wrapped
from tiller_protocol.ops import (
    AnyOp,
    Compact,
    Interrupt,
    SessionConfigure,
    Shell,
    TurnContinue,
    Unrevert,
    UserInput,
)
from tiller_protocol.settings import Settings
from tiller_protocol.snapshot import SessionSummary

SETTINGS = ("model", "variant", "agent", "approve", "sandbox")
"""Commands that change the setting of the same name."""

HELP = """\
Enter sends a line. While a turn is running, the model reads it before its next request.
A line that ends with a backslash continues on the next one.
When you are asked, your line is the answer. Approvals: y once, a always, h always here,
n or n REASON to reject.
@PATH in a line attaches an image or names a file. !COMMAND runs your own command.
/queue TEXT     let the running turn take TEXT after its other work
/interrupt      end the running turn
/model NAME     choose the model; likewise /variant, /agent, /approve, /sandbox
/continue       continue without a new message
/compact [TEXT] summarise the history now; TEXT says what to keep
/unrevert       undo the last revert
/rename TITLE   give the session a title
/quit           leave, as Ctrl-C does; a running turn goes on
Your own custom commands work here, too, and those of the project."""


class PlainChat:
    """Interprets the lines typed in one session; `leaves` becomes true at `/quit`."""

    def __init__(self, session: SessionSummary, console: Console) -> None:
        self.leaves = False
        self._id = session.session_id
        self._workspace = session.workspace
        self._console = console
        self._begun = ""
        """The lines so far of an unfinished text."""

    def op_of(self, line: str) -> AnyOp | None:
        """The op for a line, if it needs one; raises `UsageError` if the line can't be used."""
        if line.endswith("\\"):
            self._begun += line[:-1] + "\n"
            return None
        text, self._begun = (self._begun + line).strip(), ""
        if text.startswith("!") and text[1:].strip():
            return Shell(self._id, text[1:].strip())
        if text in ("exit", "quit"):
            text = f"/{text}"
        name, _, rest = text.partition(" ")
        return self._command(name.removeprefix("/") if name[:1] == "/" else "", rest.strip(), text)

    def _command(self, name: str, rest: str, text: str) -> AnyOp | None:
        """The op for a command; a command unknown here becomes input, as the daemon may know it."""
        match name:
            case "help":
                for line in wrapped(HELP, self._console.width).split("\n"):
                    self._console.line(line)
            case "quit" | "exit":
                self.leaves = True
            case "interrupt":
                return Interrupt(self._id)
            case "continue":
                return TurnContinue(self._id)
            case "compact":
                return Compact(self._id, rest)
            case "unrevert":
                return Unrevert(self._id)
            case "rename":
                return SessionConfigure(self._id, title=_required(name, rest))
            case "queue":
                return self._input(_required(name, rest), queue=True)
            case _ if name in SETTINGS:
                # The daemon checks the value; its rejection lists the existing values.
                settings = Settings(**{name: _required(name, rest)})  # type: ignore[arg-type]
                return SessionConfigure(self._id, settings)
            case _:
                return self._input(text, queue=False)
        return None

    def _input(self, text: str, *, queue: bool) -> UserInput:
        images, files = attachments(text, self._workspace)
        return UserInput(self._id, text, images, files, "queue" if queue else "auto")


def run_plain(connection: DaemonConnection, session: SessionSummary, after: int) -> int:
    """Show the events after number `after`, and send typed lines, until the user leaves."""
    console = Console(lines=True)
    plain = PlainChat(session, console)
    console.line("type /help for help, /quit to leave")
    with (
        Signals("you have left the chat; a running turn goes on", leaves=True) as signals,
        Watch(connection, session.session_id, signals, after, patient=True) as watch,
    ):
        interactive = InteractiveSession(watch, console, op_of=plain.op_of, goes_on="/continue")
        interactive.follow(session, lambda: plain.leaves)
    return 0


def _required(name: str, rest: str) -> str:
    if not rest:
        raise UsageError(f"/{name} needs a value; see /help")
    return rest
