"""Asks frontends for files that are open in an editor, if they lend a session this ability.

Only a frontend knows the content of an unsaved buffer. It has little time to answer; if anything
goes wrong, the call uses the file on disk.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

import trio
from msgspec import Struct

from tiller_daemon.files.paths import Location, PathProblem
from tiller_daemon.files.whole_files import read_whole, state_of
from tiller_daemon.session.outbox import Publish
from tiller_daemon.tools.encoding import (
    UTF_8,
    EncodingProblem,
    decode_text,
    encode_like,
    printable_text,
)
from tiller_protocol.codec import encode_file_wanted
from tiller_protocol.lending import LENT_TEXT_CHARS_MAX, FileWanted, LentFile, lender_topic

ANSWER_S_MAX: Final = 2.0
"""How long a call waits for editors, which answer in milliseconds unless a dialog blocks them."""

VERSIONS_MAX: Final = 10_000
"""How many earlier contents of files are remembered, to recognize an outdated editor."""


class Lenders(Protocol):
    """Knows which frontends offer to read files for which session."""

    def readers(self, session_id: str) -> tuple[str, tuple[str, ...]]:
        """Return the session that has the loan, and the lenders that may be asked for files."""
        ...

    def ask_no_more(self, session_id: str, lender: str) -> None:
        """Stop asking a lender for files until it lends again."""
        ...


class _Question:
    """A question to one lender."""

    def __init__(self, lender: str) -> None:
        self.lender = lender
        self.answered = trio.Event()
        self.text: str | None = None


class EditorFiles:
    """The open questions to lenders, and the known contents of the files in question."""

    def __init__(self, loans: Lenders, publish: Publish, new_id: Callable[[], str]) -> None:
        """`publish` sends a question to its lender."""
        self._loans = loans
        self._publish = publish
        self._new_id = new_id
        self._open: dict[str, _Question] = {}
        self._versions: OrderedDict[bytes, None] = OrderedDict()

    def take(self, op: LentFile) -> None:
        """Take an answer; drop the answer if nobody waits for it."""
        if question := self._open.get(op.question_id):
            question.text = op.text
            question.answered.set()

    async def unsaved(self, session_id: str, workspace: str, location: Location) -> bytes | None:
        """See `tools.editors.Editors`; asks for a path below the workspace as it was named."""
        # So a save while the editors answer counts as a change, and is not lost.
        if (saved := await self.note(session_id, location)) is None:
            return None
        data, text = saved
        for answer in await self._ask(session_id, f"{workspace}/{location.text}"):
            lines = _plain(answer)
            # Some editors leave out the end of the last line.
            versions = {_version(location, one) for one in (lines, f"{lines}\n")}
            if self._versions.keys().isdisjoint(versions) and "\0" not in lines:
                is_cut = text.endswith("\n") and not lines.endswith("\n")
                return encode_like(data, f"{lines}\n" if is_cut else lines)
        return None

    async def note(self, session_id: str, location: Location) -> tuple[bytes, str] | None:
        """Note a file's current content, and return it; None if no editor will be asked."""
        if not location.inside or not self._loans.readers(session_id)[1]:
            return None
        saved = await trio.to_thread.run_sync(_text_on_disk, location, abandon_on_cancel=True)
        if saved is not None:
            version = _version(location, _plain(saved[1]))
            self._versions[version] = None
            self._versions.move_to_end(version)
            if len(self._versions) > VERSIONS_MAX:
                self._versions.popitem(last=False)
        return saved

    async def _ask(self, session_id: str, path: str) -> tuple[str, ...]:
        """Ask all lenders at once; a silent lender is not asked again until it renews its loan."""
        owner_id, lenders = self._loans.readers(session_id)
        questions = {self._new_id(): _Question(lender) for lender in lenders}
        self._open |= questions
        try:
            for question_id, question in questions.items():
                wanted = FileWanted(question_id, owner_id, path)
                self._publish(lender_topic(question.lender), encode_file_wanted(wanted))
            with trio.move_on_after(ANSWER_S_MAX):
                for question in questions.values():
                    await question.answered.wait()
        finally:
            for question_id in questions:
                del self._open[question_id]
        for question in questions.values():
            if not question.answered.is_set():
                # Each further read would wait for it again.
                self._loans.ask_no_more(owner_id, question.lender)
        return tuple(one.text for one in questions.values() if one.text is not None)


class EditorsOfSession(Struct, frozen=True):
    """The editors of one session; implements `tools.editors.Editors`."""

    files: EditorFiles
    session_id: str
    workspace: str

    async def unsaved(self, location: Location) -> bytes | None:
        """Return the unsaved content of a file, as the editors have it."""
        return await self.files.unsaved(self.session_id, self.workspace, location)

    async def written(self, location: Location) -> None:
        """Note the new content of a file that was written."""
        await self.files.note(self.session_id, location)


def _text_on_disk(location: Location) -> tuple[bytes, str] | None:
    """Return bytes and text of a file; None if an editor's text can't be compared with it."""
    try:
        state = state_of(location)
        if state is None or state.st_size > LENT_TEXT_CHARS_MAX:
            return None
        data = read_whole(location)
        text, encoding = decode_text(data)
    except (PathProblem, EncodingProblem):
        return None
    # An editor may decode any other bytes to different characters.
    is_plain = encoding.codec == UTF_8.codec and printable_text(text) == text
    return (data, text) if is_plain else None


def _plain(text: str) -> str:
    """Return a text in a form that is the same however an editor stores it."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _version(location: Location, lines: str) -> bytes:
    """Return an identifier for a file's content."""
    return hashlib.sha256(f"{location.path}\0{lines}".encode(errors="replace")).digest()
