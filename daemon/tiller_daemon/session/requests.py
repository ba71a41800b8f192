"""A session's open requests: a task of the turn waits in `ask`, and the submission loop answers.

The log has the open requests (`request_opened` without `request_resolved`), so every frontend that
attaches sees them. Only the waiting tasks are kept here. `Log.requests` finds out how a request was
resolved.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio
from msgspec import Struct

from tiller_daemon.errors import RejectionError
from tiller_daemon.policy.rules import grants
from tiller_daemon.session.outbox import Outbox
from tiller_protocol.events import RequestOpened, RequestResolved, StatusChanged
from tiller_protocol.items import Request, Resolution
from tiller_protocol.settings import Rule

IsAllowed = Callable[[], bool]
"""Returns whether the current rules allow a request, so that it needs no answer."""

Keep = Callable[[str, tuple[Rule, ...]], None]
"""Stores rules of the answer `always_here` for a place; raises `RejectionError` if that fails."""


class Reply(Struct, frozen=True):
    """How a request was resolved: `text` is feedback or the answer, and `by` names the frontend."""

    resolution: Resolution
    text: str = ""
    by: str = ""

    @property
    def approves(self) -> bool:
        """Whether the call may run."""
        return self.resolution in ("once", "always", "always_here")

    @property
    def gives_reason(self) -> bool:
        """Whether the user rejected the call with a reason, so that the model can go on."""
        return bool(self.text.strip())


CANCELLED = Reply("cancelled")


class NoWaitingTask(Exception):
    """No task waits for this request. The log shows whether it was resolved, and by whom."""

    def __init__(self, request_id: str) -> None:
        super().__init__(request_id)
        self.request_id = request_id


@dataclass
class _Waiter:
    """A task that waits for the answer to a request."""

    request: Request
    """The request that is shown to the user."""
    turn_id: str
    """The turn that asks."""
    is_allowed: IsAllowed
    """Called when rules are granted, because the request may then need no answer."""
    answered: trio.Event = field(default_factory=trio.Event)
    """Set when the request is resolved."""
    reply: Reply = CANCELLED
    """Valid once `answered` is set."""


class RequestObserver(Protocol):
    """Watches the requests of a sub-agent's session, to show them in its owner's session too."""

    def request_opened(self, request: Request) -> None:
        """Take a request that was opened."""
        ...

    def request_resolved(self, request_id: str, reply: Reply) -> None:
        """Take the resolution of a request."""
        ...


class OpenRequests:
    """The requests that tasks of this session's turns wait for.

    Sub-agents' requests are mirrored, which means shown here under the same id, but answered in
    the sub-agent's session. `observer` is set while a sub-agent's turn runs in this session.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.observer: RequestObserver | None = None
        self._mirrored: dict[str, Request] = {}
        self._outbox = outbox
        self._waiters: dict[str, _Waiter] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiters

    async def ask(self, request: Request, turn_id: str, is_allowed: IsAllowed) -> Reply:
        """Open `request` and wait until it is answered, or `reconsider` finds it allowed.

        If cancelled, the request stays open in the log until the turn is closed.
        """
        waiter = self._waiters[request.id] = _Waiter(request, turn_id, is_allowed)
        self._open_in_log(request, turn_id)
        try:
            await waiter.answered.wait()
        finally:
            # An answer that comes now must not go to a task that no longer waits.
            self._waiters.pop(request.id, None)
            if self.observer and not waiter.answered.is_set():
                # The end of the turn resolves the request in this session, but not in the owner's.
                self.observer.request_resolved(request.id, CANCELLED)
        return waiter.reply

    def mirror(self, request: Request, turn_id: str) -> None:
        """Show a sub-agent's request in this session."""
        self._mirrored[request.id] = request
        self._open_in_log(request, turn_id)

    def resolve_mirrored(self, request_id: str, reply: Reply, turn_id: str) -> None:
        """Show how a mirrored request was resolved; no effect if the request is not open."""
        if self._mirrored.pop(request_id, None):
            self._resolve_in_log(request_id, reply, turn_id)
            self._show_status(turn_id)

    def answer(self, request_id: str, reply: Reply, keep: Keep) -> tuple[Rule, ...]:
        """Resolve a request; return the rules that the answer `always` grants to the session.

        Rules of `always_here` go to `keep`. Rejecting a call without a reason also rejects all
        other open requests. Raises `NoWaitingTask`, a `RejectionError` with `already_resolved` or
        `bad_message`, or the errors of `keep`.
        """
        waiter = self._waiters.get(request_id)
        if waiter is None:
            raise NoWaitingTask(request_id)
        # The waiting task may not have run yet; the first answer counts.
        if waiter.answered.is_set():
            raise already_resolved(request_id, waiter.reply.resolution, waiter.reply.by)
        _check_kind(waiter.request, reply)
        rules = grants(waiter.request.permission, waiter.request.always)
        if reply.resolution == "always_here":
            # A rule that can't be stored must not look stored, so the request stays open.
            keep(waiter.request.always_here, rules)
        self._resolve(waiter, reply)
        ends_turn = reply.resolution == "reject" and not reply.gives_reason
        if ends_turn and waiter.request.kind != "question":
            # The turn ends, so its other requests are moot. A rejected question does not end it.
            for other in self._open():
                self._resolve(other, Reply("reject", "", reply.by))
        self._show_status(waiter.turn_id)
        return rules if reply.resolution == "always" else ()

    def withdraw(self, item_id: str) -> None:
        """Cancel a call's open questions; the waiting tasks get the reply `cancelled`."""
        for waiter in self._open():
            if waiter.request.item_id == item_id and waiter.request.kind == "question":
                self._resolve(waiter, CANCELLED)
                self._show_status(waiter.turn_id)

    def reconsider(self) -> None:
        """Resolve the open requests that the rules now allow."""
        for waiter in self._open():
            if waiter.is_allowed():
                self._resolve(waiter, Reply("always"))
                self._show_status(waiter.turn_id)

    def _open(self) -> list[_Waiter]:
        return [waiter for waiter in self._waiters.values() if not waiter.answered.is_set()]

    def _resolve(self, waiter: _Waiter, reply: Reply) -> None:
        waiter.reply = reply
        waiter.answered.set()
        self._resolve_in_log(waiter.request.id, reply, waiter.turn_id)

    def _open_in_log(self, request: Request, turn_id: str) -> None:
        waiting = StatusChanged("waiting", request_id=request.id)
        # One commit, so that no frontend sees the status without the request.
        self._outbox.put(RequestOpened(request), waiting, turn_id=turn_id)
        if self.observer:
            self.observer.request_opened(request)

    def _resolve_in_log(self, request_id: str, reply: Reply, turn_id: str) -> None:
        resolved = RequestResolved(request_id, reply.resolution, reply.by, reply.text)
        self._outbox.put(resolved, turn_id=turn_id)
        if self.observer:
            self.observer.request_resolved(request_id, reply)

    def _show_status(self, turn_id: str) -> None:
        still_open = [*(waiter.request.id for waiter in self._open()), *self._mirrored]
        if still_open:
            status = StatusChanged("waiting", request_id=still_open[0])
        else:
            status = StatusChanged("busy")
        self._outbox.put(status, turn_id=turn_id)


def _check_kind(request: Request, reply: Reply) -> None:
    question = request.kind == "question"
    if question != (reply.resolution == "answer") and reply.resolution != "reject":
        wanted = "answer, or reject" if question else "once, always or reject"
        raise RejectionError(
            "bad_message",
            f"Request {request.id} is of the kind {request.kind}. Answer it with {wanted}.",
        )
    if reply.resolution == "always_here" and not request.always_here:
        raise RejectionError(
            "bad_message",
            f"Request {request.id} can't be allowed by a lasting rule. Answer it with once, always "
            "or reject.",
        )


def already_resolved(request_id: str, resolution: str, by: str) -> RejectionError:
    """Return the rejection of an answer to a resolved request; `data` says how and by whom."""
    who = f" by {by}" if by else ""
    return RejectionError(
        "already_resolved",
        f"Request {request_id} was already resolved{who}: {resolution}.",
        {"resolution": resolution, "by": by},
    )


def unknown_request(request_id: str) -> RejectionError:
    """Return the rejection of an answer to a request that is not in the log."""
    return RejectionError(
        "not_found", f"There is no request {request_id}. `tiller requests` lists the open ones."
    )
