"""Passes the daemon's questions about files to the editor, whose buffers may be unsaved."""

import contextlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import PurePath

import msgspec
from msgspec import Raw

from tiller_client.acp.rpc import Peer, RpcError
from tiller_client.acp.schema import FileContent, read
from tiller_client.acp.updates import ReadFileParams
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.sockets import EventSocket
from tiller_client.errors import TillerError
from tiller_protocol.codec import decode_file_wanted
from tiller_protocol.errors import BadMessage
from tiller_protocol.lending import LENT_TEXT_CHARS_MAX, FileWanted, LentFile, lender_topic


class EditorFiles:
    """Passes the daemon's questions for `lender` to the client, and the answers back."""

    def __init__(self, connection: DaemonConnection, peer: Peer, lender: str) -> None:
        """Listen for questions, until `close`."""
        self._connection = connection
        self._peer = peer
        self._socket = EventSocket(connection.places, lender_topic(lender))

    @property
    def sources(self) -> list[int]:
        """The descriptors to wait for."""
        return self._socket.sources

    def advance(self, directory_of: Callable[[str], str | None]) -> None:
        """Pass on questions about files in the directories of sessions that are open here.

        `directory_of` returns the directory that the client has named for a session, or None. All
        other questions are answered without a text: the daemon may run on another machine, which
        must not choose what is read here.
        """
        for message in self._socket.drain_bodies():
            with contextlib.suppress(BadMessage):
                wanted = decode_file_wanted(message)
                directory = directory_of(wanted.session_id)
                if directory and is_below(wanted.path, directory):
                    self._ask(wanted)
                else:
                    self._answer(wanted, None)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def _ask(self, wanted: FileWanted) -> None:
        params = ReadFileParams(wanted.session_id, wanted.path)
        self._peer.request("fs/read_text_file", params, partial(self._answered, wanted))

    def _answered(self, wanted: FileWanted, result: Raw | None, _error: RpcError | None) -> None:
        text = None
        if result is not None:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                text = read(result, FileContent).content
        if text is not None and len(text) > LENT_TEXT_CHARS_MAX:
            text = None
        self._answer(wanted, text)

    def _answer(self, wanted: FileWanted, text: str | None) -> None:
        # Without a connection, the daemon that asked is gone; another one would not need this.
        if self._socket.sources:
            with contextlib.suppress(TillerError), self._connection.starting_only_crashed():
                self._connection.submit(LentFile(wanted.question_id, text))


def is_below(path: str, directory: str) -> bool:
    """Whether a path leads to a file below a directory, even if links on this machine matter."""
    if ".." in PurePath(path).parts or not PurePath(directory).is_absolute():
        return False
    named, real = (path, directory), (os.path.realpath(path), os.path.realpath(directory))
    return all(PurePath(directory) in PurePath(path).parents for path, directory in (named, real))
