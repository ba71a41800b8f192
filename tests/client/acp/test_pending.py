"""Each prompt gets one answer, whatever becomes of its turn and the queue."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tiller_client.acp.pending import PendingPrompts
from tiller_client.acp.rpc import RpcError
from tiller_client.acp.updates import PromptResult
from tiller_protocol.answers import Queued, Started
from tiller_protocol.events import AnyBody, Event, ItemStarted, Outcome, QueueChanged, TurnEnded
from tiller_protocol.ids import ItemId
from tiller_protocol.items import QueuedInput, Usage, UserMessage

ACTIONS = st.lists(
    st.sampled_from(
        ["prompt", "follow_up", "remove", "end", "interrupt", "fail", "cancel", "other", "replayed"]
    ),
    max_size=25,
)
OUTCOMES: dict[str, Outcome] = {"end": "completed", "interrupt": "interrupted", "fail": "failed"}


class Answers:
    """In place of the client: what each prompt was answered."""

    def __init__(self) -> None:
        self.by_id: dict[Any, str] = {}

    def respond(self, request_id: Any, result: PromptResult) -> None:
        assert request_id not in self.by_id, "answered twice"
        self.by_id[request_id] = result.stop_reason

    def fail(self, request_id: Any, _error: RpcError) -> None:
        assert request_id not in self.by_id, "answered twice"
        self.by_id[request_id] = "error"


class Session:
    """A daemon's session, as simple as possible: one running turn at most, and a queue."""

    def __init__(self) -> None:
        self.answers = Answers()
        self.unqueued: list[str] = []
        self.prompts = PendingPrompts(self.answers, self._unqueue)  # type: ignore[arg-type]
        self.queue: list[str] = []
        self.turn = ""
        self.taken: dict[str, str] = {}
        """The turn of each input."""
        self.expected: dict[str, set[str]] = {}
        """What each prompt may be answered, once it must be."""
        self.seq = 0

    def run(self, action: str) -> None:
        match action:
            case "prompt" | "other":
                self._input(own=action == "prompt")
            case "follow_up" if self.turn and self.queue:
                self._settle(self._running(), {"end_turn"})
                self._take(self.queue.pop(0), "queue")
            case "remove" if self.queue:
                self._settle([self.queue.pop()], {"cancelled"})
                self._show(self._queue_changed())
            case "end" | "interrupt" | "fail" if self.turn:
                self._end(OUTCOMES[action])
            case "cancel":
                self._settle(self.queue, {"cancelled"})
                self.prompts.cancel_queued()
            case "replayed":
                self.prompts.drop_removed()
            case _:
                pass

    def _input(self, *, own: bool) -> None:
        self.seq += 1
        input_id = f"i{self.seq}"
        if self.turn:
            self.queue.append(input_id)
            if own:
                self.prompts.add(input_id, Queued(input_id, 0))
            self._show(self._queue_changed())
            return
        self.turn = f"t{self.seq}"
        if own:
            self.prompts.add(input_id, Started(self.turn))
        self._take(input_id, "start", own=own)

    def _take(self, input_id: str, delivery: str, *, own: bool | None = None) -> None:
        self.taken[input_id] = self.turn
        if delivery == "queue":
            self._show(self._queue_changed())
        message = UserMessage(ItemId(input_id), "x", delivery)  # type: ignore[arg-type]
        was_own = self._show(ItemStarted(message))
        assert own is None or was_own is own

    def _end(self, outcome: Outcome) -> None:
        reasons = {"completed": {"end_turn"}, "interrupted": {"cancelled"}, "failed": {"error"}}
        self._settle(self._running(), reasons[outcome])
        waiting = len(self.queue)
        if waiting:
            self._settle(self.queue, {"error"})
        ended = TurnEnded(outcome, 1, Usage(), 1.0, queued=waiting)
        self._show(ended)
        self.turn = ""
        self.queue.clear()

    def _running(self) -> list[str]:
        return [one for one, turn in self.taken.items() if turn == self.turn]

    def _settle(self, inputs: list[str], answers: set[str]) -> None:
        for one in inputs:
            self.expected.setdefault(one, answers)

    def _unqueue(self, input_id: str) -> None:
        self.unqueued.append(input_id)
        if input_id in self.queue:
            self.queue.remove(input_id)

    def _queue_changed(self) -> QueueChanged:
        return QueueChanged(tuple(QueuedInput(one, "x", "queue") for one in self.queue))

    def _show(self, body: AnyBody) -> bool:
        self.seq += 1
        return self.prompts.take(Event(self.seq, "s", 0.0, body, self.turn or None))


@given(actions=ACTIONS)
@example(actions=["prompt", "prompt", "prompt", "remove", "end"])
def test_every_prompt_is_answered_once_and_rightly(actions: list[str]) -> None:
    session = Session()
    for action in actions:
        session.run(action)
    session.prompts.drop_removed()
    for input_id, answer in session.answers.by_id.items():
        assert answer in session.expected[input_id], (input_id, answer)
    unanswered = [one for one in session.expected if one in session.prompts]
    assert unanswered == []
    session.prompts.end()
    assert not session.prompts
