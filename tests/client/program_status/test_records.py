"""What a terminal is told of a session, and of a list of sessions."""

from support.event_bodies import ended, started
from tiller_client.program_status.changes import StatusChanges
from tiller_client.program_status.records import SessionRecords, records_of_sessions
from tiller_client.program_status.report import RECORDS_MAX, ROOT, Record
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import (
    AnyBody,
    BackgroundChanged,
    Event,
    ItemCompleted,
    ItemStarted,
    Outcome,
    PlanUpdated,
    RequestOpened,
    RequestResolved,
    StatusChanged,
    ToolCallUpdated,
    TurnEnded,
)
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import BackgroundCommand, PlanEntry, Request, SubAgent, ToolCall, Usage
from tiller_protocol.snapshot import SessionSummary

PUSH = Request("r1", "approval", "Run git push")
COLOUR = Request("r2", "question", "Which colour?")
READ = ToolCall(ItemId("i1"), CallId("c1"), "read", "{}", "pending", title="read a.py")
TASK = ToolCall(ItemId("i2"), CallId("c2"), "task", "{}", "pending", title="helper: find the tests")
HELPER = SubAgent("01K0AAAAAAAAAAAAAAAAAAHELP", "helper")


def after(*bodies: AnyBody) -> dict[str, Record]:
    """The records after these events of a new session."""
    session = SessionRecords()
    for seq, body in enumerate(bodies, 1):
        session.note(Event(seq, "s", 0.0, body))
    return session.records()


def own(*bodies: AnyBody) -> Record:
    return after(*bodies)[ROOT]


def end(outcome: Outcome, error: ErrorInfo | None = None) -> TurnEnded:
    return TurnEnded(outcome, 1, Usage(), 1.0, error=error)


def test_a_session_works_waits_and_is_done() -> None:
    assert own() == Record("idle", app="tiller")
    assert own(started()) == Record("working", app="tiller")
    assert own(started(), ItemStarted(READ)).message == "read a.py"
    assert own(started(), ItemStarted(READ), ItemCompleted(READ)).message == ""
    compacting = StatusChanged("busy", cause="compacting")
    assert own(started(), compacting).message == "compacting"
    asked = (started(), RequestOpened(PUSH))
    assert own(*asked) == Record("blocked", "permission", app="tiller", message="Run git push")
    assert own(*asked, RequestResolved("r1", "once")).state == "working"
    assert own(started(), RequestOpened(COLOUR)).kind == "question"
    assert own(started(), ended("All is well.\n")) == Record(
        "done", app="tiller", message="All is well."
    )


def test_the_end_of_a_turn_tells_why() -> None:
    limit = ErrorInfo("max_steps", "The turn has made 200 requests.")
    assert own(started(), end("limit_reached", limit)) == Record(
        "error", app="tiller", message="The turn has made 200 requests."
    )
    key = ErrorInfo("authentication", "The key was refused.")
    assert own(started(), end("failed", key)) == Record(
        "blocked", "auth", app="tiller", message="The key was refused."
    )
    assert own(started(), RequestOpened(PUSH), end("interrupted")).state == "idle"


def test_the_plan_is_the_progress() -> None:
    plan = (PlanEntry("a", "completed"), PlanEntry("b", "in_progress"), PlanEntry("c", "pending"))
    assert own(started(), PlanUpdated(plan)).progress == 33
    assert own(started(), PlanUpdated(())).progress is None


def test_each_working_sub_agent_has_a_record_of_its_own() -> None:
    begun = (started(), ItemStarted(TASK), ToolCallUpdated("i2", "running", sub_agent=HELPER))
    child = Record("working", title="helper: find the tests")
    assert after(*begun)[HELPER.session_id] == child
    assert after(*begun, ItemCompleted(TASK)).keys() == {ROOT}
    asks = RequestOpened(Request("r3", "approval", "helper: Run make", item_id="i2"))
    blocked = Record(
        "blocked", "permission", title="helper: find the tests", message="helper: Run make"
    )
    assert after(*begun, asks)[HELPER.session_id] == blocked
    running = BackgroundCommand("b1", "helper: find the tests", "running", 0.0, sub_agent=HELPER)
    assert after(BackgroundChanged((running,)))[HELPER.session_id] == child


def test_a_terminal_gets_only_what_has_changed() -> None:
    changes = StatusChanges(is_wanted=True)
    working, child = Record("working", app="tiller"), Record("working", title="helper")
    assert changes.update({ROOT: working, "a": child}).count("\x1b]7501;") == 2
    assert changes.update({ROOT: working, "a": child}) == ""
    assert changes.update({ROOT: working}) == "\x1b]7501;state=clear:id=a\x1b\\"
    assert changes.end() == "\x1b]7501;state=clear\x1b\\"
    assert changes.end() == "", "nothing is left"


def test_the_result_of_a_program_can_stay() -> None:
    changes = StatusChanges(is_wanted=True)
    changes.update({ROOT: Record("done", app="tiller"), "a": Record("working")})
    assert changes.end(keeps_result=True) == "\x1b]7501;state=clear:id=a\x1b\\"


def test_nothing_is_written_where_nobody_wants_it() -> None:
    changes = StatusChanges(is_wanted=False)
    assert changes.update({ROOT: Record("done")}) + changes.end() == ""


def summary(number: int, **more: object) -> SessionSummary:
    return SessionSummary(f"s{number}", "/work/shop", 0.0, 0.0, 1, **more)  # type: ignore[arg-type]


def test_of_a_list_the_most_urgent_is_told() -> None:
    waits = summary(1, status="waiting", title="Pay", requests=(PUSH,))
    works = summary(2, status="busy", plan_done=1, plan_size=4, last_line="Reading.")
    done = summary(3, unseen=True, last_outcome="completed", last_line="Done.")
    failed = summary(4, unseen=True, last_outcome="failed", reason="No key.")
    seen = summary(5, last_outcome="completed")
    records = records_of_sessions([seen, done, works, failed, waits])
    assert records == {
        ROOT: Record("blocked", "permission", app="tiller", message="1 session needs you"),
        "s1": Record("blocked", "permission", title="Pay", message="Run git push"),
        "s4": Record("error", title="shop", message="No key."),
        "s2": Record("working", progress=25, title="shop", message="Reading."),
        "s3": Record("done", title="shop", message="Done."),
    }
    assert records_of_sessions([seen]) == {ROOT: Record("idle", app="tiller")}
    assert records_of_sessions([works])[ROOT].message == "1 session at work"


def test_a_terminal_is_told_no_more_than_it_can_keep() -> None:
    many = [summary(number, status="busy") for number in range(200)]
    records = records_of_sessions([*many, summary(999, status="waiting", requests=(COLOUR,))])
    assert len(records) == RECORDS_MAX
    assert "s999" in records
