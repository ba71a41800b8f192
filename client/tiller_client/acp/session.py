"""One session that a client has open: sends its events as updates, and takes prompts."""

import contextlib
import os
import time
from typing import Literal

from tiller_client.acp.asking import Asking
from tiller_client.acp.lending import Loan
from tiller_client.acp.options import Offer, modes_of, offer_of, options_of, window_of
from tiller_client.acp.pending import PendingPrompts
from tiller_client.acp.prompts import read_prompt
from tiller_client.acp.rpc import INVALID_PARAMS, Peer, RequestId, RpcFailure
from tiller_client.acp.schema import ClientCapabilities, ContentBlock
from tiller_client.acp.updates import (
    AnyUpdate,
    CommandsShown,
    InfoShown,
    ModeShown,
    Opened,
    OptionsShown,
    SessionUpdate,
)
from tiller_client.acp.view import SessionView, iso_time, usage
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.errors import NoDaemon, RejectedError, TillerError
from tiller_client.following.catchup import leaving
from tiller_client.following.snapshots import read_snapshot
from tiller_client.following.watch import Subscription
from tiller_client.rendering.lines import model_problem
from tiller_protocol.answers import (
    AnyResult,
    CatalogResult,
    Queued,
    ReplayResult,
    Started,
    Steered,
)
from tiller_protocol.events import (
    Event,
    QueueChanged,
    RequestOpened,
    RequestResolved,
    SessionConfigured,
    TurnEnded,
)
from tiller_protocol.fold import fold_replayed
from tiller_protocol.ops import (
    Catalog,
    Interrupt,
    QueueEdit,
    Replay,
    SessionMarkSeen,
    UserInput,
)

OUTPUT_INTERVAL_S = 0.2
"""Shortest time between two updates with the output of running calls."""

NEW_LOG = (
    "The daemon has a new event log, in which this session does not exist. Start a new session."
)


class EditorSession:
    """A session of the daemon for one client; `close` when the client leaves it."""

    def __init__(
        self,
        connection: DaemonConnection,
        peer: Peer,
        client: ClientCapabilities,
        loan: Loan,
        session_id: str,
        directory: str,
    ) -> None:
        """Read the session, lend and subscribe.

        Raises the same errors as `DaemonConnection.submit`, and `RpcFailure` if the session does
        not work in `directory`, unless that is empty.
        """
        self.id = session_id
        self._loan = loan
        self._connection = connection
        self._peer = peer
        self._shows_queue = client.shows_queue
        self.snapshot = read_snapshot(connection.ask, session_id)
        self._check(directory)
        loan.renew()
        self._offer = self._ask_offer()
        self._following = Subscription(connection, session_id, self.snapshot.seq)
        self._chosen = self.opened
        self._view = SessionView(client)
        self._prompts = PendingPrompts(peer, self._unqueue)
        self._asking = Asking(connection, peer, client, session_id)
        self._output_at = 0.0

    @property
    def sources(self) -> list[int]:
        """The descriptors to wait for."""
        return self._following.sources

    @property
    def wait_s_max(self) -> float:
        """The longest time until the next `advance`."""
        longest = self._following.wait_s_max(busy=bool(self._prompts))
        return min(longest, OUTPUT_INTERVAL_S) if self._view.has_output else longest

    @property
    def opened(self) -> Opened:
        """The session's choices, for the answer that opens it."""
        modes = modes_of(self._offer, self.snapshot.settings)
        return Opened(modes, options_of(self._offer, self.snapshot))

    @property
    def model_problem(self) -> str:
        """Why no model can be used here; empty if one can, or may be."""
        models = self._offer.catalog.models
        if any(not one.problem for one in models):
            return ""
        return model_problem(self._offer.catalog, self.snapshot.settings)

    def show_history(self) -> None:
        """Send the whole conversation so far."""
        for update in self._view.history(self.snapshot):
            self._send(update)

    def announce(self) -> None:
        """Send the first updates; call this after the answer that opened the session."""
        self._send(CommandsShown(self._offer.commands))
        if self.snapshot.title:
            self._send(InfoShown(self.snapshot.title, iso_time(self.snapshot.updated_at)))
        for update in usage(self.snapshot, window_of(self._offer, self.snapshot.settings)):
            self._send(update)
        for request in self.snapshot.requests:
            self._asking.ask(request, self.snapshot)

    def advance(self) -> None:
        """Send the updates since the last call; raises if the session can't be followed."""
        if self._loan.is_due and self._following.sources:
            with self._connection.unless_stopped():
                self._loan.renew()
        self._take(busy=bool(self._prompts))
        if self._prompts.may_be_removed and self._following.caught_up:
            self._prompts.drop_removed()
        now = time.monotonic()
        if self._view.has_output and now - self._output_at >= OUTPUT_INTERVAL_S:
            self._output_at = now
            for update in self._view.take_output(self.snapshot):
                self._send(update)

    def catch_up(self) -> None:
        """Read the log up to its present end, and send the updates."""
        self._following.suspect_gap()
        while not self._following.caught_up:
            time.sleep(self._following.wait_s_max(busy=True))
            self._take(busy=True)

    def prompt(self, request_id: RequestId, blocks: tuple[ContentBlock, ...]) -> None:
        """Start a turn, or wait for the running one; answered when the prompt's own turn ends."""
        result = self._input(blocks, "queue")
        assert isinstance(result, Started | Queued)
        self._prompts.add(request_id, result)

    def steer(self, blocks: tuple[ContentBlock, ...]) -> dict[str, object]:
        """Send input to the running turn."""
        result = self._input(blocks, "steer")
        assert isinstance(result, Steered)
        return {"turnId": result.turn_id, "inputId": result.input_id}

    def queue(self, blocks: tuple[ContentBlock, ...]) -> dict[str, object]:
        """Queue input for after the running turn; if no turn is running, start one."""
        match self._input(blocks, "queue"):
            case Queued(input_id, position):
                return {"inputId": input_id, "position": position}
            case Started(turn_id):
                return {"turnId": turn_id}
            case result:
                raise AssertionError(result)

    def cancel(self) -> None:
        """Interrupt the running turn, and take back the prompts that wait for its end."""
        self._prompts.cancel_queued()
        with contextlib.suppress(RejectedError):  # the turn may have ended just now
            self._connection.submit(Interrupt(self.id))

    def has_prompt(self, request_id: RequestId) -> bool:
        """Whether this is an unanswered prompt of the session."""
        return request_id in self._prompts

    def fail(self, message: str) -> None:
        """Answer all waiting prompts with an error, as the session can't be followed."""
        self._prompts.fail(message)

    def leave(self) -> None:
        """End the loan and no longer count as a follower, unless the daemon is gone."""
        if self._following.sources:
            with self._connection.unless_stopped():
                self._loan.take_back()
                with contextlib.suppress(RejectedError):  # the daemon is older, or the session gone
                    self._connection.submit(leaving(self.id))

    def close(self) -> None:
        """Leave the session."""
        self._prompts.end()
        self._asking.close()
        self._following.close()

    def _check(self, directory: str) -> None:
        """Raise `RpcFailure` if the session works elsewhere; other machines' links are unknown."""
        workspace = self.snapshot.workspace
        if not directory or self._connection.is_remote:
            return
        if os.path.realpath(directory) != os.path.realpath(workspace):
            raise RpcFailure(
                INVALID_PARAMS,
                f"session {self.id} works in {workspace}, not in {directory}: open it with that "
                "directory as `cwd`, or start a new session",
            )

    def _take(self, *, busy: bool) -> None:
        ask = self._connection.ask if busy else self._ask_connected
        try:
            taken = self._following.take(ask, busy=busy)
        except NoDaemon:
            return
        if taken.started_over:
            raise TillerError(NEW_LOG)
        for event in taken.events:
            fold_replayed(self.snapshot, event)
            self._show(event)

    def _ask_connected(self, op: Replay, kind: type[ReplayResult]) -> ReplayResult:
        """Ask for a replay while nobody waits for a turn, which starts no daemon."""
        if not self._following.connected:
            raise NoDaemon("no daemon is connected")
        return self._connection.look(op, kind)

    def _input(
        self, blocks: tuple[ContentBlock, ...], delivery: Literal["steer", "queue"]
    ) -> AnyResult | None:
        given = read_prompt(blocks, self.snapshot.workspace)
        self._loan.renew()
        op = UserInput(self.id, given.text, given.images, given.files, delivery)
        return self._connection.submit(op).result

    def _unqueue(self, input_id: str) -> None:
        with contextlib.suppress(RejectedError):  # the input was taken or removed just now
            self._connection.submit(QueueEdit(self.id, input_id, "remove"))

    def _show(self, event: Event) -> None:
        own = self._prompts.take(event)
        for update in self._view.updates(event, self.snapshot, own=own):
            self._send(update)
        match event.body:
            case RequestOpened(request):
                self._asking.ask(request, self.snapshot)
            case RequestResolved(request_id, resolution):
                self._asking.resolve(request_id, resolution)
            case SessionConfigured():
                self._show_choices()
            case QueueChanged():
                self._show_queue()
                if self._prompts.may_be_removed:
                    self._following.suspect_gap()
            case TurnEnded(outcome="completed"):  # other outcomes may mean that the daemon stops
                self._refresh_offer()
                # Whoever prompts in an editor sees the answer there.
                with contextlib.suppress(RejectedError), self._connection.unless_stopped():
                    self._connection.submit(SessionMarkSeen(self.id, event.seq))
            case _:
                pass

    def _show_choices(self) -> None:
        """Tell the client if its user sees other choices now; a granted rule is none of them."""
        before, self._chosen = self._chosen, self.opened
        if self._chosen.modes != before.modes:
            self._send(ModeShown(self._chosen.modes.current_mode_id))
        if self._chosen.config_options != before.config_options:
            self._send(OptionsShown(self._chosen.config_options))

    def _refresh_offer(self) -> None:
        """Tell the client if commands were added or removed, such as an MCP server's prompts."""
        before = self._offer
        with contextlib.suppress(RejectedError), self._connection.unless_stopped():
            self._offer = self._ask_offer()
        if self._offer.commands != before.commands:
            self._send(CommandsShown(self._offer.commands))

    def _show_queue(self) -> None:
        if not self._shows_queue:
            return
        queue = [
            {"inputId": one.id, "text": one.text, "delivery": one.delivery}
            for one in self.snapshot.queue
        ]
        self._peer.notify("_tiller/queue_update", {"sessionId": self.id, "queue": queue})

    def _ask_offer(self) -> Offer:
        op = Catalog(self.snapshot.workspace, session_id=self.id)
        return offer_of(self._connection.ask(op, CatalogResult))

    def _send(self, update: AnyUpdate) -> None:
        self._peer.notify("session/update", SessionUpdate(self.id, update))
