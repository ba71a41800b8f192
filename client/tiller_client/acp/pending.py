"""A client's unanswered prompts, and the turn that each prompt belongs to."""

from collections.abc import Callable
from dataclasses import dataclass

from tiller_client.acp.rpc import INTERNAL_ERROR, Peer, RequestId, RpcError
from tiller_client.acp.updates import PromptResult, StopReason
from tiller_protocol.answers import Queued, Started
from tiller_protocol.events import Event, ItemStarted, Outcome, QueueChanged, TurnEnded
from tiller_protocol.items import UserMessage

_STOP_REASONS: dict[Outcome, StopReason] = {
    "completed": "end_turn",
    "blocked": "end_turn",
    "interrupted": "cancelled",
    "limit_reached": "max_turn_requests",
}
"""The stop reason for each outcome of a turn. A turn that failed, or that the user did not end, is
an error instead."""

NOT_SENT = (
    "The previous turn did not complete, so this message was not sent. Send it again to continue."
)


@dataclass
class _Prompt:
    """A prompt that waits for the end of its turn."""

    request_id: RequestId
    turn_id: str = ""
    """The turn that took the prompt; empty while the prompt is queued."""
    input_id: str = ""
    """The queued input; empty if the prompt was never queued."""
    left_queue: bool = False
    """Whether the prompt has left the queue, but is not in the history yet."""


class PendingPrompts:
    """Unanswered prompts, in the order of arrival; `unqueue` removes an input from the queue."""

    def __init__(self, peer: Peer, unqueue: Callable[[str], None]) -> None:
        self._peer = peer
        self._unqueue = unqueue
        self._prompts: list[_Prompt] = []

    def __bool__(self) -> bool:
        return bool(self._prompts)

    def __contains__(self, request_id: RequestId) -> bool:
        return any(prompt.request_id == request_id for prompt in self._prompts)

    @property
    def may_be_removed(self) -> bool:
        """Whether a prompt has left the queue; later events tell whether a turn took it."""
        return any(prompt.left_queue for prompt in self._prompts)

    def add(self, request_id: RequestId, result: Started | Queued) -> None:
        """Add a prompt that the daemon has accepted."""
        match result:
            case Started(turn_id):
                self._prompts.append(_Prompt(request_id, turn_id=turn_id))
            case Queued(input_id):
                self._prompts.append(_Prompt(request_id, input_id=input_id))

    def take(self, event: Event) -> bool:
        """Note an event; return whether it is the message of one of these prompts."""
        match event.body:
            case ItemStarted(UserMessage() as message):
                return self._enters(message, event.turn_id or "")
            case QueueChanged(queue):
                queued = {one.id for one in queue}
                for prompt in self._prompts:
                    prompt.left_queue = not prompt.turn_id and prompt.input_id not in queued
            case TurnEnded():
                self._turn_ended(event.body, event.turn_id or "")
            case _:
                pass
        return False

    def drop_removed(self) -> None:
        """Answer the prompts that have left the queue: somebody else has removed them.

        Call this when all events are known, so that no turn can have taken them.
        """
        for prompt in self._pop(lambda prompt: prompt.left_queue):
            self._stop(prompt, "cancelled")

    def cancel_queued(self) -> None:
        """Remove the queued prompts from the queue, and answer them as cancelled."""
        for prompt in self._pop(lambda prompt: not prompt.turn_id):
            self._unqueue(prompt.input_id)
            self._stop(prompt, "cancelled")

    def fail(self, message: str) -> None:
        """Answer all prompts with an error."""
        for prompt in self._pop(lambda _: True):
            self._peer.fail(prompt.request_id, RpcError(INTERNAL_ERROR, message))

    def end(self) -> None:
        """Answer all prompts as cancelled, because the session was closed."""
        self.cancel_queued()
        for prompt in self._pop(lambda _: True):
            self._stop(prompt, "cancelled")

    def _enters(self, message: UserMessage, turn_id: str) -> bool:
        entering = [prompt for prompt in self._prompts if prompt.input_id == message.id]
        if message.delivery == "start" and not entering:
            return any(prompt.turn_id == turn_id for prompt in self._prompts)
        if message.delivery == "queue":
            # A queued prompt continues the turn of the previous prompt, whose answer is complete.
            for done in self._pop(lambda prompt: prompt.turn_id == turn_id):
                self._stop(done, "end_turn")
        for prompt in entering:
            prompt.turn_id, prompt.left_queue = turn_id, False
        return bool(entering)

    def _turn_ended(self, body: TurnEnded, turn_id: str) -> None:
        for prompt in self._pop(lambda prompt: prompt.turn_id == turn_id):
            reason = _STOP_REASONS.get(body.outcome)
            if body.outcome == "interrupted" and body.error:
                reason = None  # the daemon has ended, not the user
            if reason is None and body.error and body.error.code == "content_policy":
                reason = "refusal"
            if reason is not None:
                self._stop(prompt, reason, turn_id)
                continue
            code = body.error.code if body.error else "internal"
            message = body.error.message if body.error else "The turn failed."
            self._peer.fail(prompt.request_id, RpcError(INTERNAL_ERROR, message, {"code": code}))
        if body.queued:
            # Prompts still in the queue were not sent; others without a turn were removed.
            self.drop_removed()
            for prompt in self._pop(lambda prompt: not prompt.turn_id):
                self._unqueue(prompt.input_id)
                self._peer.fail(prompt.request_id, RpcError(INTERNAL_ERROR, NOT_SENT))

    def _stop(self, prompt: _Prompt, reason: StopReason, turn_id: str = "") -> None:
        meta = {"tiller": {"turnId": turn_id}} if turn_id else None
        self._peer.respond(prompt.request_id, PromptResult(reason, meta))

    def _pop(self, wanted: Callable[[_Prompt], bool]) -> list[_Prompt]:
        popped = [prompt for prompt in self._prompts if wanted(prompt)]
        self._prompts = [prompt for prompt in self._prompts if not wanted(prompt)]
        return popped
