"""The history of a turn: its items in order, and the selection that goes into a model request."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct, structs

from tiller_daemon.models.history_cache import HistoryCache
from tiller_daemon.turn.tokens import PRUNED_OUTPUT, TokenEstimator
from tiller_protocol.items import (
    AssistantMessage,
    Compaction,
    Item,
    Notice,
    Patch,
    Reasoning,
    ToolCall,
    UserMessage,
)
from tiller_protocol.turns import CUT_OFF

ABORTED_OUTPUT = "The call was aborted before it produced a result."


TASK_OF_USER = (
    "The user gave the message above to the sub-agent {agent}. Its result:\n{output}\n\nGo on from "
    "this result without repeating the work: tell the user what matters, and do what is left."
)


class _Arguments(Struct, frozen=True):
    """The arguments of a user's call that the model gets."""

    command: str = ""
    agent: str = ""


class History:
    """Items in the order in which they started; a tool call is replaced when it completes.

    The output of the calls in `pruned` is no longer sent to a model. Every request made from this
    history carries `cache`; `estimator` estimates the tokens of the items sent.
    """

    def __init__(
        self, items: Iterable[Item], pruned: Iterable[str] = (), earlier: "History | None" = None
    ) -> None:
        """Take over the caches of an `earlier` history of the session, which can't be used after.

        Its items to send are taken over, too, if history has only grown since.
        """
        self._items = list(items)
        self.pruned = frozenset(pruned)
        self.cache = earlier.cache if earlier else HistoryCache()
        self.estimator = earlier.estimator if earlier else TokenEstimator()
        self._sent = earlier._sent_of(self) if earlier else _SentItems(self.pruned)

    @property
    def items(self) -> Sequence[Item]:
        """All items, oldest first, as a view that grows with history."""
        return self._items

    def for_request(self) -> tuple[Item, ...]:
        """Return the items to send, like the function `for_request`; only new items take time."""
        self._sent.add(self._items[self._sent.count :])
        return tuple(self._sent.items)

    def sent_before(self, count: int) -> tuple[Item, ...]:
        """Return the items that `for_request` returned when history had only `count` items."""
        self._sent.add(self._items[self._sent.count :])
        sent = self._sent.before(count)
        return for_request(self._items[:count], self.pruned) if sent is None else sent

    def prune(self, call_ids: Iterable[str]) -> None:
        """Stop sending the output of these calls."""
        self.pruned = self.pruned.union(call_ids)
        self._sent = _SentItems(self.pruned)

    def add(self, *items: Item) -> None:
        """Append items."""
        self._items.extend(items)

    def replace(self, item: Item) -> None:
        """Replace the item that has the same id. Raises `KeyError` if there is no such item."""
        # Backwards: replaced items are almost always among the newest.
        for index in range(len(self._items) - 1, -1, -1):
            if self._items[index].id == item.id:
                self._items[index] = item
                if index < self._sent.count:
                    self._sent = _SentItems(self.pruned)
                return
        raise KeyError(f"no item {item.id} in history")

    def _sent_of(self, later: "History") -> "_SentItems":
        """Return the sent items of this history if `later` begins with its items, else no items.

        Items are compared by identity first, so identical items take no time.
        """
        count = self._sent.count
        if self.pruned == later.pruned and self._items[:count] == later._items[:count]:
            return self._sent
        return _SentItems(later.pruned)


def for_request(items: Iterable[Item], pruned: frozenset[str] = frozenset()) -> tuple[Item, ...]:
    """Return the items to send. Discarded and compacted items are left out; calls have results."""
    sent = _SentItems(pruned)
    sent.add(items)
    return tuple(sent.items)


class _SentItems:
    """The items to send from the first `count` items of history. Grows as history grows."""

    def __init__(self, pruned: frozenset[str]) -> None:
        self.items: list[Item] = []
        self.count = 0
        self._lengths: list[int] = []
        """How many items there were to send after each item of history."""
        self._rewritten_at = 0
        """The length of history before the latest item that replaced earlier items to send."""
        self._pruned = pruned
        self._inputs: dict[str, UserMessage] = {}

    def add(self, items: Iterable[Item]) -> None:
        """Process the next items of history."""
        for item in items:
            self.count += 1
            self._add(item)
            self._lengths.append(len(self.items))

    def before(self, count: int) -> tuple[Item, ...] | None:
        """Return the items to send from the first `count` items; None if some were replaced."""
        if count <= self._rewritten_at or count > self.count:
            return None if count else ()
        return tuple(self.items[: self._lengths[count - 1]])

    def _add(self, item: Item) -> None:
        match item:
            case AssistantMessage():
                if item.state != "discarded" and item.text:
                    self._add_message(item)
            case Reasoning():
                if item.state != "discarded":
                    self.items.append(item)
            case ToolCall(by_provider=True):
                pass  # reasoning has the data that the provider needs back
            case ToolCall(by_user=True):
                self.items.append(_as_notice(item, self._pruned))
            case ToolCall():
                if not item.discarded:
                    self.items.append(_with_result(item, self._pruned))
            case Compaction():
                self._rewritten_at = self.count - 1
                self.items = [*(self._inputs[message] for message in item.kept), item]
            case UserMessage():
                self._inputs[item.id] = item
                self.items.append(item)
            case Patch():
                pass
            case Notice():
                self.items.append(item)

    def _add_message(self, message: AssistantMessage) -> None:
        """Append a message, or join it with the message that it continues.

        If there is reasoning in between that the provider needs back, it belongs to its own
        response, so both messages and the notice between them stay as they are.
        """
        for index in range(len(self.items) - 1, 0, -1):
            item, before = self.items[index], self.items[index - 1]
            # Only people read this reasoning, so it may be left out of the history.
            if isinstance(item, Reasoning) and not item.opaque:
                continue
            if not (isinstance(item, Notice) and item.code == CUT_OFF):
                break
            if isinstance(before, AssistantMessage):
                whole = structs.replace(before, text=before.text + message.text)
                self.items = [*self.items[: index - 1], whole]
                self._rewritten_at = self.count - 1
                return
        self.items.append(message)


def _as_notice(call: ToolCall, pruned: frozenset[str]) -> Notice:
    """Turn a user's call into a notice, because providers reject calls that no model made."""
    given = msgspec.json.decode(call.arguments, type=_Arguments)
    output = _with_result(call, pruned).output
    if given.agent:
        return Notice(call.id, "task", TASK_OF_USER.format(agent=given.agent, output=output))
    text = f"The user ran this command:\n{given.command}\n\nOutput:\n{output}"
    return Notice(call.id, "shell", text)


def _with_result(call: ToolCall, pruned: frozenset[str]) -> ToolCall:
    if call.id in pruned:
        return structs.replace(call, output=PRUNED_OUTPUT, images=())
    if call.state in ("completed", "error"):
        return call
    return structs.replace(
        call, state="error", error_kind="aborted", output=call.output or ABORTED_OUTPUT
    )
