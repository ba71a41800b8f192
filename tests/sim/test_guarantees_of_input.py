"""G10 as properties of random programs: no input is lost, delivered twice, or late."""

import math
from collections import Counter

import pytest
from msgspec import convert, to_builtins

from sim.batches import of_every_program
from sim.oracle import Mailbox, mailbox_of, messages_of
from sim.player import Seen
from sim.sessions import beginning, lasting_answers
from tiller_protocol.answers import Accepted, AnyAnswer, Queued, Rejected, Started, Steered
from tiller_protocol.events import (
    HistoryReverted,
    ItemStarted,
    QueueChanged,
    RequestOpened,
    ToolCallUpdated,
    TurnStarted,
)
from tiller_protocol.items import Item, Notice, ToolCall, UserMessage
from tiller_protocol.ops import (
    AnyOp,
    QueueEdit,
    TurnContinue,
    UserInput,
)
from tiller_protocol.settings import TurnChoices, TurnOverrides

INSTANT_S = 0.05
"""What happens within this time may have been under way; pieces of a stream wait for less."""


@of_every_program
@pytest.mark.promise("G10")
def test_steering_is_delivered_or_handed_back_and_never_twice(seen: Seen) -> None:
    """Every queue of every session is what a plain model of it says; see `oracle`."""
    for session in seen.sessions.values():
        shared = beginning(session, seen)
        mailbox = mailbox_of(session.log, session.commits, seen.ops, shared)
        assert messages_of(session.snapshot.items) == mailbox.history
        shown = [(given.id, given.text, given.delivery) for given in session.snapshot.queue]
        assert shown == mailbox.queue
        there = [*mailbox.delivered, *mailbox.queue]
        where = Counter([given.id for given in there] + mailbox.removed)
        assert max(where.values(), default=1) == 1, "an input is in two places"
        for submission_id, answers in seen.answers.items():
            op = seen.ops[submission_id]
            if isinstance(op, UserInput) and op.session_id == session.session_id:
                _check_input(op, lasting_answers(answers), mailbox, mailbox.ids.get(submission_id))


@of_every_program
@pytest.mark.promise("G10")
def test_an_accepted_text_is_in_history_or_in_the_queue_once(seen: Seen) -> None:
    """As above by the words alone, which are one of a kind for each submission."""
    there: Counter[str] = Counter()
    edited = {op.input_id for op in seen.ops.values() if isinstance(op, QueueEdit)}
    for session in seen.sessions.values():
        started = [e.body.item for e in session.log if isinstance(e.body, ItemStarted)]
        given = [item for item in started if isinstance(item, UserMessage)]
        there.update(one.text for one in [*given, *session.snapshot.queue])
    for submission_id, answers in seen.answers.items():
        op, lasting = seen.ops[submission_id], lasting_answers(answers)
        if isinstance(op, UserInput) and not edited:
            accepted = bool(lasting) and isinstance(lasting[0], Accepted)
            assert there[op.text] == accepted, op


@of_every_program
@pytest.mark.promise("G10", "B16")
def test_no_call_begins_when_steering_has_arrived(seen: Seen) -> None:
    if seen.program.commits_s != (0.0,):
        return  # the time of an event is then not the time at which it happened
    for session in seen.sessions.values():
        steered_at, exempt = math.inf, set[str]()
        for event in session.log:
            match event.body:
                case QueueChanged(queue=queue):
                    steers = any(given.delivery == "steer" for given in queue)
                    steered_at = min(steered_at, event.time) if steers else math.inf
                case RequestOpened(request=request) if request.kind != "question":
                    assert event.time < steered_at + INSTANT_S, "asked after the user steered"
                    exempt.add(request.item_id)
                case ItemStarted(item=ToolCall(by_provider=True, id=item_id)):
                    exempt.add(item_id)  # begun by the provider, which no steering reaches
                case ToolCallUpdated(item_id=item_id, state="running") if item_id not in exempt:
                    assert event.time < steered_at + INSTANT_S, "begun after the user steered"
                case _:
                    pass


@of_every_program
@pytest.mark.promise("G10")
def test_steering_for_no_turn_is_handed_back_in_the_answer(seen: Seen) -> None:
    for submission_id, answers in seen.answers.items():
        for answer in answers:
            if isinstance(answer, Rejected) and answer.code in ("no_active_turn", "overloaded"):
                op = seen.ops[submission_id]
                if isinstance(op, UserInput):
                    assert answer.data["input"]["text"] == op.text


@of_every_program
@pytest.mark.promise("G6")
def test_a_turn_has_the_choices_of_its_input_or_of_the_turn_that_it_goes_on_from(
    seen: Seen,
) -> None:
    for session in seen.sessions.values():
        bodies = [event.body for event in session.log]
        if session.snapshot.parent_id or any(isinstance(b, HistoryReverted) for b in bodies):
            continue  # which turn was the latest is then another question
        latest = TurnOverrides()
        for number, event in enumerate(session.log):
            if isinstance(event.body, TurnStarted) and event.body.choices:
                op = seen.ops[event.submission_id or ""]
                begins = next(b.item for b in bodies[number:] if isinstance(b, ItemStarted))
                latest = _choices_for(op, begins, latest)
                assert event.body.choices == TurnChoices(latest), op


def _choices_for(op: AnyOp, begins: Item, latest: TurnOverrides) -> TurnOverrides:
    """What was chosen for the turn that `op` started and that begins with this item."""
    if isinstance(op, TurnContinue) and isinstance(begins, Notice):
        given = to_builtins(latest) | to_builtins(op.overrides)
        return convert(given, TurnOverrides)
    if isinstance(op, UserInput) and op.text != getattr(begins, "text", ""):
        return TurnOverrides()  # older input goes first
    return op.overrides if isinstance(op, UserInput | TurnContinue) else TurnOverrides()


def _check_input(
    op: UserInput, lasting: list[AnyAnswer], mailbox: Mailbox, input_id: str | None
) -> None:
    """Accepted input was told under which id, and is in one place; other input is nowhere."""
    if not lasting or isinstance(lasting[0], Rejected):
        assert input_id is None, op
        return
    assert input_id is not None, f"accepted and lost: {op}"
    match lasting[0].result:
        case Steered(input_id=told) | Queued(input_id=told):
            assert told == input_id
        case Started():
            assert input_id in [given.id for given in mailbox.delivered]
        case result:
            assert result is None
            assert op.no_reply
