"""Submits ops for the user, in order, and gives back the text of those that fail."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from tiller_client.api.blocking import Kind
from tiller_client.api.for_asyncio import Client
from tiller_client.chat.attaching import attachments, named_images
from tiller_client.chat.state import ChatState
from tiller_client.errors import RejectedError, TillerError, UsageError
from tiller_protocol.answers import AnyResult, CatalogResult, Created
from tiller_protocol.ops import (
    AnyOp,
    Catalog,
    Interrupt,
    QueueEdit,
    SessionConfigure,
    SessionFork,
    Shell,
    UserInput,
)
from tiller_protocol.settings import Settings
from tiller_protocol.turns import Queued, Steered

RETRY_S = 0.5
"""Time between two attempts to reach a daemon that can't be started or does not answer."""

WAIT_TOLD_S = 0.5
"""After this time without an answer, the user is told that a text waits; most come in 10 ms."""

WAITS = "your text waits until what runs now has ended; Esc interrupts it"

Done = Callable[[AnyResult | None], None]
Failed = Callable[[TillerError], None]


class Submitter:
    """Submits ops about one chat's session, in order; their effects arrive as events."""

    def __init__(self, client: Client, state: ChatState) -> None:
        self._client = client
        self._state = state
        self._submissions: asyncio.Queue[tuple[AnyOp, Done, Failed]] = asyncio.Queue()
        self._told: set[asyncio.Task[None]] = set()
        self.has_input = False
        """Whether the user has said anything."""
        self._waits = False
        """Whether an op has been without an answer for `WAIT_TOLD_S`."""
        self._unanswered: list[UserInput] = []
        self._recalled: list[UserInput] = []
        """The unanswered inputs that are taken back if they wait."""

    async def send(self) -> None:
        """Send the submissions, one after another, until cancelled."""
        while True:
            submission = await self._submissions.get()
            told = asyncio.get_running_loop().call_later(WAIT_TOLD_S, self._tell_wait)
            try:
                await self._send(*submission)
            finally:
                told.cancel()
                self._waits = False

    async def _send(self, op: AnyOp, done: Done, failed: Failed) -> None:
        try:
            result = await self._client.submit(op)
        except TillerError as error:
            failed(error)
        else:
            done(result)

    def _tell_wait(self) -> None:
        self._waits = True
        if self._state.is_busy:
            self._state.say(WAITS)

    def interrupt(self) -> None:
        """Interrupt the turn; the daemon answers an input only once a user's command has ended."""
        op = Interrupt(self._state.session_id)
        if self._waits:
            self._state.start(self._send(op, lambda _: None, partial(self.failed, "")))
        else:
            self.submit(op)

    async def look_up(self, op: AnyOp, kind: type[Kind]) -> Kind | None:
        """Return the answer to an op that no user waits for, or `None` if it is rejected.

        Retry until there is an answer, but do not start a daemon that was stopped.
        """

        def ask() -> Kind:
            with self._client.blocking.pool.connect(only_crashed=True) as connection:
                return connection.look(op, kind)

        while True:
            try:
                return await self._client.in_thread(ask)
            except RejectedError:
                return None
            except TillerError:
                await asyncio.sleep(RETRY_S)

    def tell(self, op: AnyOp) -> None:
        """Submit an op that no user waits for; nothing comes of it if the daemon was stopped."""

        def send() -> None:
            pool = self._client.blocking.pool
            with (
                contextlib.suppress(TillerError),
                pool.connect(only_crashed=True) as connection,
                connection.starting_only_crashed(),
            ):
                connection.submit(op)

        task = asyncio.get_running_loop().create_task(self._client.in_thread(send))
        self._told.add(task)
        task.add_done_callback(self._told.discard)

    def submit(
        self,
        op: AnyOp,
        *,
        written: str = "",
        done: Done | None = None,
        failed: Failed | None = None,
    ) -> None:
        """Submit an op after all earlier ones; call `done` or `failed` at its end.

        Without `failed`, the user is told why it failed, and `written`, the user's text, is put
        back into the editor.
        """
        self.has_input |= isinstance(op, UserInput | Shell)
        failed = failed or partial(self.failed, written)
        self._submissions.put_nowait((op, done or (lambda _: None), failed))

    def configure(self, **fields: object) -> None:
        """Change the session's settings, from the next turn on."""
        self.submit(SessionConfigure(self._state.session_id, Settings(**fields)))  # type: ignore[arg-type]

    def open(self, session_id: str) -> None:
        """Show another session."""
        self._state.next_session = session_id
        self._state.leave()

    def fork(self, at: int | None) -> None:
        """Fork the session, at an event or at its end, and switch to the fork."""

        def created(result: AnyResult | None) -> None:
            assert isinstance(result, Created)
            self.open(result.session_id)

        self.submit(SessionFork(self._state.session_id, at), done=created)

    def with_catalog(self, call: Callable[[], None], *, written: str = "") -> None:
        """Load the current catalog, as the configuration may have changed, then `call`."""

        def loaded(result: AnyResult | None) -> None:
            assert isinstance(result, CatalogResult)
            self._state.catalog = result
            call()

        self.submit(Catalog(self._state.snapshot.workspace), written=written, done=loaded)

    def input(self, text: str, written: str, typed: str, *, queue: bool) -> None:
        """Send an input, with the files that are named in what was typed, not in a long paste."""
        workspace = self._state.snapshot.workspace
        try:
            images, files = attachments(typed, workspace)
        except UsageError as error:
            self.failed(written, error)
            return
        if missing := [one.name for one in named_images(typed, workspace) if not one.exists]:
            self._state.say(f"sent without {', '.join(missing)}, which does not exist")
        # An input that waits since an interrupt or a failure must not go before a new one.
        idle = "start" if self._state.snapshot.queue and not self._state.is_busy else "auto"
        delivery = "queue" if queue else idle
        op = UserInput(self._state.session_id, text, images, files, delivery)
        self._unanswered.append(op)

        def failed(error: TillerError) -> None:
            self._unanswered.remove(op)
            self.failed(written, error)

        self.submit(op, done=partial(self._answered, op, written), failed=failed)

    def recall_unanswered(self) -> bool:
        """Take back the inputs whose answer has not come yet, if they wait; whether there are any.

        Call it when the turn is interrupted: such inputs are in no queue that is known here.
        """
        self._recalled = [*self._unanswered]
        return bool(self._recalled)

    def _answered(self, op: UserInput, written: str, result: AnyResult | None) -> None:
        self._unanswered.remove(op)
        if op in self._recalled and isinstance(result, Steered | Queued):
            removes = QueueEdit(self._state.session_id, result.input_id, "remove")
            # If it fails, the turn has taken the input.
            self.submit(removes, done=lambda _: self._give_back(written), failed=lambda _: None)

    def _give_back(self, written: str) -> None:
        self._state.editor.put_before(written)
        self._state.changed()

    def failed(self, written: str, error: TillerError) -> None:
        """Tell the user why something failed, and give back the user's text."""
        if not written:
            self._state.say(str(error))
        elif self._state.editor.is_empty:
            self._state.editor.put(written)
            self._state.say(f"not sent: {error}")
        else:
            self._state.say(f"not sent (Up brings your text back): {error}")
