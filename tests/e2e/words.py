"""What a scripted model says, in few words."""

from tiller_daemon.models.scripted import CallPart, Failure, HangPart, ScriptStep, TextPart
from tiller_protocol.items import Item, ToolCall, UserMessage


def text(words: str, pieces: int = 1) -> ScriptStep:
    """An answer."""
    return ScriptStep(parts=(TextPart(words, pieces=pieces),))


def always(words: str) -> ScriptStep:
    """The same answer to everything that comes from here on."""
    return ScriptStep(parts=(TextPart(words),), repeat=True)


def bash(command: str, call_id: str = "", **arguments: object) -> CallPart:
    """A command."""
    return CallPart("bash", arguments={"command": command, **arguments}, call_id=call_id)


def read(path: str, call_id: str = "") -> CallPart:
    """A file to be read."""
    return CallPart("read", arguments={"path": path}, call_id=call_id)


def write(path: str, content: str, call_id: str = "") -> CallPart:
    """A file to be written."""
    return CallPart("write", arguments={"path": path, "content": content}, call_id=call_id)


def calls(*parts: CallPart) -> ScriptStep:
    """A response of calls alone."""
    return ScriptStep(parts=parts)


def hang(words: str = "") -> ScriptStep:
    """A stream that says something and then never ends."""
    return ScriptStep(parts=(TextPart(words), HangPart()))


def failing(*failures: Failure, words: str = "after all") -> ScriptStep:
    """An answer whose first attempts fail."""
    return ScriptStep(parts=(TextPart(words),), failures=failures)


def calls_in(items: tuple[Item, ...]) -> list[ToolCall]:
    """The calls among items."""
    return [item for item in items if isinstance(item, ToolCall)]


def said_in(items: tuple[Item, ...]) -> list[str]:
    """What the user says in items."""
    return [item.text for item in items if isinstance(item, UserMessage)]
