"""Asks a client about a session's open requests, and submits its answers to the daemon."""

import os
import stat
from collections.abc import Callable
from functools import partial
from typing import Literal

import msgspec
from msgspec import Raw, structs

from tiller_client.acp.approval import ELSEWHERE, fields_asked, in_one_line, options_for
from tiller_client.acp.questions import (
    Answered,
    form_for,
    read_form,
    read_outcome,
)
from tiller_client.acp.rpc import Peer, RpcError
from tiller_client.acp.schema import CancelRequestParams, ClientCapabilities
from tiller_client.acp.updates import (
    CallChanged,
    FormParams,
    PermissionParams,
    SessionUpdate,
)
from tiller_client.acp.view import find_call
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.console import complain
from tiller_client.errors import RejectedError, TillerError
from tiller_client.program_name import program
from tiller_client.rendering.text import sanitized
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import Request, Resolution, ToolCall
from tiller_protocol.ops import Answer, Interrupt
from tiller_protocol.snapshot import Snapshot

FILE_BYTES_MAX = 1024**2
"""Largest file that a client gets whole, to see a change of it: the daemon shows no change of a
larger one."""

_Read = Callable[[Request, Raw], Answered | Literal["elsewhere"] | None]
"""Reads the client's answer; None if the user dismissed the question."""


class Asking:
    """The requests of one session about which the client was asked."""

    def __init__(
        self,
        connection: DaemonConnection,
        peer: Peer,
        client: ClientCapabilities,
        session_id: str,
    ) -> None:
        self._connection = connection
        self._peer = peer
        self._client = client
        self._session_id = session_id
        self._asked: dict[str, int] = {}
        """For each request's id, the number of the JSON-RPC request to the client."""
        self._foreign: set[str] = set()
        """Requests about a sub-agent's call, which the client knows only from the question."""

    def ask(self, request: Request, snapshot: Snapshot) -> None:
        """Ask the client about a request."""
        if request.id in self._asked:
            return
        if request.kind == "question" and self._client.forms:
            form = FormParams(
                self._session_id,
                "form",
                sanitized(request.detail or request.title),
                form_for(request),
                request.item_id or None,
            )
            answered = partial(self._answered, request, read_form)
            self._asked[request.id] = self._peer.request("elicitation/create", form, answered)
            return
        call = find_call(snapshot, request.item_id)
        if call is None:
            self._foreign.add(request.id)
        params = PermissionParams(
            self._session_id,
            fields_asked(
                _answerable(request), call or _stand_in(request), snapshot.workspace, self._read
            ),
            options_for(request),
        )
        answered = partial(self._answered, request, read_outcome)
        number = self._peer.request("session/request_permission", params, answered)
        self._asked[request.id] = number

    def resolve(self, request_id: str, resolution: Resolution) -> None:
        """Withdraw the question: its request was answered, perhaps in another frontend."""
        self._withdraw(request_id)
        if request_id in self._foreign:
            self._foreign.discard(request_id)
            status = "failed" if resolution in ("reject", "cancelled") else "completed"
            changed = CallChanged(tool_call_id=request_id, status=status)
            self._peer.notify("session/update", SessionUpdate(self._session_id, changed))

    def close(self) -> None:
        """Withdraw all questions."""
        for request_id in list(self._asked):
            self._withdraw(request_id)

    def _read(self, path: str) -> str | None:
        """The text of a file on the daemon's machine; None if it can't be read here."""
        return None if self._connection.is_remote else _text_of(path)

    def _withdraw(self, request_id: str) -> None:
        if (number := self._asked.pop(request_id, None)) is not None:
            self._peer.forget(number)
            self._peer.notify("$/cancel_request", CancelRequestParams(number))

    def _answered(
        self, request: Request, read: _Read, result: Raw | None, error: RpcError | None
    ) -> None:
        self._asked.pop(request.id, None)
        if result is None:
            self._not_asked(request, error)
            return
        try:
            answer = read(request, result)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
            self._not_asked(request, RpcError(0, str(failure)))
        else:
            if answer != ELSEWHERE:
                self._answer(request, answer)

    def _answer(self, request: Request, answer: Answered | None) -> None:
        """Submit the answer; a dismissed question ends the turn, as the protocol requires."""
        op = (
            Interrupt(self._session_id)
            if answer is None
            else Answer(request.id, answer.decision, answer.text)
        )
        try:
            self._connection.submit(op)
        except RejectedError:
            pass  # somebody else has answered first
        except TillerError as error:
            complain(f"the answer to {request.title!r} was not sent: {error}")

    def _not_asked(self, request: Request, error: RpcError | None) -> None:
        why = f": {error.message}" if error else ""
        complain(
            f"the editor could not ask you about {request.title!r}{why}; to answer, run: "
            f"{program()} answer {request.id} …"
        )


def _answerable(request: Request) -> Request:
    """Add to a question how to answer: a permission request takes no text.

    The title has the choices, too, as some clients show neither content nor the options' names.
    """
    if request.kind != "question":
        return request
    how = "To answer in your own words" if request.choices else "To answer"
    choices = [
        f"{number}. {in_one_line(choice)}" for number, choice in enumerate(request.choices, 1)
    ]
    asked = request.detail or request.title
    lines = [f"{how}: {program()} answer {request.id} answer TEXT", "", asked, *choices]
    return structs.replace(
        request,
        title=" ".join([request.title, *choices]),
        detail="\n".join(lines),
        detail_kind="text",
    )


def _stand_in(request: Request) -> ToolCall:
    """Make a tool call for a request without one in this session: a sub-agent or the turn asks."""
    return ToolCall(ItemId(request.id), CallId(""), request.permission, "", "pending")


def _text_of(path: str) -> str | None:
    """The text of a regular UTF-8 file of at most `FILE_BYTES_MAX`, otherwise None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(FILE_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
        return data.decode() if len(data) <= FILE_BYTES_MAX else None
    except (OSError, ValueError):
        return None
