"""The input queue of a session: input that was accepted and is not yet in the history.

The submission loop puts input in, and the turn takes it out. No method is async, so a check and the
action after it are atomic. Steering that a turn did not take becomes queued input.
"""

from msgspec import structs

from tiller_protocol.codec import INPUT_BYTES_MAX
from tiller_protocol.events import QueueChanged
from tiller_protocol.items import QueuedInput
from tiller_protocol.settings import FollowUps

CLIENT = "task"
"""The client's name for input that no user wrote: a sub-agent's prompt, and its report."""

QUEUED_INPUTS_MAX = 100
"""How many inputs may wait in one session; any more are rejected as `overloaded`. Only reports of
background sub-agents, of which there are few, are always accepted."""

QUEUED_BYTES_MAX = INPUT_BYTES_MAX
"""How many bytes the waiting inputs of one session may have together, as an event contains all of
them. A single input may have as many."""


class InputQueue:
    """Implements the turn's `Mailbox`. `is_open` says whether the turn still takes input."""

    def __init__(self, queue: tuple[QueuedInput, ...]) -> None:
        self._queue = list(queue)
        self.is_open = False

    @property
    def queue(self) -> tuple[QueuedInput, ...]:
        """The waiting inputs, in the order in which they will be taken."""
        return tuple(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether the queue is at its limit."""
        return len(self._queue) >= QUEUED_INPUTS_MAX

    def has_bytes_for(self, queued: QueuedInput) -> bool:
        """Whether an input can be added, or replace the one with the same id, by its size."""
        others = sum(_size_of(one) for one in self._queue if one.id != queued.id)
        return not others or others + _size_of(queued) <= QUEUED_BYTES_MAX

    @property
    def has_steering(self) -> bool:
        """Whether steering is waiting for the running turn."""
        return any(queued.delivery == "steer" for queued in self._queue)

    @property
    def user_steers(self) -> bool:
        """Whether steering from a user is waiting for the running turn."""
        return any(given.delivery == "steer" and given.client != CLIENT for given in self._queue)

    def changed(self) -> QueueChanged:
        """Return the event with the queue and whether its inputs wait."""
        return QueueChanged(self.queue, waits=bool(self._queue) and not self.is_open)

    def open(self) -> None:
        """Begin to take input for a turn."""
        self.is_open = True

    def put(self, queued: QueuedInput) -> None:
        """Append an input; the caller has checked `is_full` and `has_bytes_for`."""
        self._queue.append(queued)

    def position(self, input_id: str) -> int | None:
        """Return the index of an input, or None if it is not queued."""
        return next((n for n, queued in enumerate(self._queue) if queued.id == input_id), None)

    def edit(self, position: int, edited: QueuedInput) -> None:
        """Replace the input at `position`; the caller has checked `has_bytes_for`."""
        self._queue[position] = edited

    def move(self, position: int, to: int) -> None:
        """Move the input at `position` to index `to`; an index beyond the end means last."""
        self._queue.insert(to, self._queue.pop(position))

    def promote(self, position: int) -> None:
        """Turn the input at `position` into steering that is taken first."""
        self._queue.insert(0, structs.replace(self._queue.pop(position), delivery="steer"))

    def take(self, position: int) -> QueuedInput:
        """Remove and return the input at `position`."""
        return self._queue.pop(position)

    def restore(self, queue: tuple[QueuedInput, ...]) -> None:
        """Reset the queue to the one in the log."""
        self._queue = list(queue)

    def take_steering(self) -> tuple[QueuedInput, ...]:
        """Remove and return all steering, oldest first."""
        taken = tuple(queued for queued in self._queue if queued.delivery == "steer")
        self._queue = [queued for queued in self._queue if queued.delivery != "steer"]
        return taken

    def take_follow_ups(self, mode: FollowUps) -> tuple[QueuedInput, ...]:
        """Remove and return the next follow-up, or all of them."""
        count = 1 if mode == "one_at_a_time" else len(self._queue)
        taken, self._queue = tuple(self._queue[:count]), self._queue[count:]
        return taken

    def close(self) -> None:
        """Stop taking input for this turn."""
        self.is_open = False

    def hand_back(self) -> None:
        """Turn undelivered steering into queued input."""
        self._queue = [structs.replace(queued, delivery="queue") for queued in self._queue]


def _size_of(queued: QueuedInput) -> int:
    images = sum(len(image.data) + len(image.text) for image in queued.images)
    return len(queued.text.encode("utf-8", "surrogatepass")) + images
