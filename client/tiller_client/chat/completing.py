"""Completes `/commands` and `@files` in the editor."""

from collections.abc import Callable, Iterable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from tiller_client.chat.attaching import quoted
from tiller_client.chat.commands import ALIASES, COMMANDS
from tiller_client.chat.files import WorkspaceFiles
from tiller_protocol.catalog import CommandSummary

FILES_SHOWN = 50
"""Maximum number of files offered at once."""


def completed_word(before: str) -> str:
    """The end of a text that can be completed: a command, or a file after an @; else empty."""
    if before.startswith("/") and not any(letter.isspace() for letter in before):
        return before
    word = before[max(map(before.rfind, " \n\t")) + 1 :]
    return word if word.startswith("@") else ""


class InputCompleter(Completer):
    """Completes the word before the cursor."""

    def __init__(
        self, files: WorkspaceFiles, custom: Callable[[], Iterable[CommandSummary]]
    ) -> None:
        """`custom` returns the custom commands."""
        self._files = files
        self._custom = custom

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 - of the interface
    ) -> Iterable[Completion]:
        """The completions of the word before the cursor."""
        word = completed_word(document.text_before_cursor)
        if word.startswith("/"):
            yield from self._commands(word[1:])
        elif word.startswith("@"):
            for path in self._files.matches(word[1:], FILES_SHOWN):
                after = "" if path.endswith("/") else " "
                yield Completion(f"@{quoted(path)}{after}", -len(word), display=path)

    def _commands(self, typed: str) -> Iterator[Completion]:
        known = [(one.name, one.help) for one in COMMANDS]
        known += [(alias, f"the same as /{name}") for alias, name in ALIASES.items()]
        known += [(one.name, one.description) for one in self._custom()]
        for name, text in known:
            if name.startswith(typed.lower()):
                yield Completion(
                    f"/{name} ", -len(typed) - 1, display=f"/{name}", display_meta=text
                )
