"""What the command line chooses for turns and sessions, and `set`."""

from typing import Any

import pytest

from support.each import each
from support.event_bodies import Tiller, started
from support.fake_daemon import FakeDaemon
from tiller_client.command_line.choices import read_budget, read_tools
from tiller_client.errors import UsageError
from tiller_protocol.events import SessionCreated
from tiller_protocol.op import Op
from tiller_protocol.ops import SessionConfigure, SessionCreate, UserInput
from tiller_protocol.places import Places
from tiller_protocol.settings import Budget, Settings, TurnOverrides

SESSION = "01K0AAAAAAAAAAAAAAAAAAASES1"


@pytest.fixture
def daemon(places: Places) -> Any:
    with FakeDaemon(places.runtime) as fake:
        fake.add(SESSION, [SessionCreated("/work", Settings())])
        yield fake


def only(daemon: FakeDaemon, kind: type[Op]) -> Any:
    (found,) = [op for op in daemon.seen.values() if isinstance(op, kind)]
    return found


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("2.50", Budget(cost=2.5)),
        ("tokens=200000", Budget(tokens=200_000)),
        ("steps=3, time_s=1.5,cost=1", Budget(steps=3, time_s=1.5, cost=1.0)),
    ],
)
def test_a_budget_is_dollars_or_named_limits(text: str, budget: Budget) -> None:
    assert read_budget(text) == budget


@each("text", ["", "much", "-1", "0", "inf", "nan", "tokens=0.5", "cost=", "a=1"])
def test_what_is_no_budget_is_misuse_that_shows_one(text: str) -> None:
    with pytest.raises(UsageError, match=r"give dollars, such as 2\.50, or limits"):
        read_budget(text)


def test_tools_are_names_between_commas() -> None:
    assert read_tools("read, mcp__x__*,") == ("read", "mcp__x__*")


@each("text", ["", " ", ",", ",,", ",read", "read,,ls", "read,,"])
def test_an_empty_name_of_a_tool_is_misuse_and_not_no_tools(text: str) -> None:
    with pytest.raises(UsageError, match="contains an empty name; give names of tools"):
        read_tools(text)


def test_a_new_session_is_given_what_was_chosen(daemon: FakeDaemon, tiller: Tiller) -> None:
    options = ("-m", "p/m", "--agent=plan", "--variant=high", "--max-steps=3", "--tools=read")
    assert tiller("new", *options, "--budget=tokens=9", "--approve=never")[0] == 0
    assert only(daemon, SessionCreate).settings == Settings(
        agent="plan",
        model="p/m",
        variant="high",
        approve="never",
        max_steps=3,
        turn_budget=Budget(tokens=9),
        tools=("read",),
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--max-steps=99999",),
            "--max-steps: '99999' is not valid; give a whole number from 1 to 10,000",
        ),
        (("--max-steps=0",), "give a whole number from 1 to 10,000"),
        (("--max-steps=many",), "give a whole number from 1 to 10,000"),
        (("--tools=,,",), "',,' contains an empty name; give names of tools"),
        (("--budget=tokens=0.5",), "tokens and steps must be at least 1"),
        (("--budget=tokens=1e30",), "'tokens=1e30' is not a budget; give dollars"),
        (("--image", ""), "the value of --image is empty"),
        (("--file", ""), "the value of --file is empty"),
    ],
)
def test_an_option_that_can_not_be_is_misuse_and_nothing_is_sent(
    daemon: FakeDaemon, tiller: Tiller, options: tuple[str, ...], said: str
) -> None:
    status, _, err = tiller("send", *options, SESSION, "go")
    assert status == 2
    assert said in err
    assert not [op for op in daemon.seen.values() if isinstance(op, UserInput)]


def test_an_input_is_given_what_was_chosen_for_its_turn(daemon: FakeDaemon, tiller: Tiller) -> None:
    options = ("-m", "p/m", "--variant=high", "--max-steps=3", "--budget=1", "--tools=read,ls")
    status, out, err = tiller("send", *options, SESSION, "go")
    assert (status, err) == (0, "")
    assert "started turn" in out
    assert only(daemon, UserInput).overrides == TurnOverrides(
        model="p/m",
        variant="high",
        max_steps=3,
        turn_budget=Budget(cost=1.0),
        tools=("read", "ls"),
    )


def test_an_input_that_starts_no_turn_says_that_its_options_have_no_effect(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    daemon.add(SESSION, [started()])
    _, out, err = tiller("send", "--queue", "--variant=high", SESSION, "go")
    assert "queued" in out
    assert "turn options such as --model have no effect; for later turns, use: tiller set" in err
    assert tiller("send", "--queue", SESSION, "go")[2] == ""


@pytest.mark.parametrize(
    ("name", "value", "changes"),
    [
        ("model", "p/m", {"settings": Settings(model="p/m")}),
        ("agent", "plan", {"settings": Settings(agent="plan")}),
        ("variant", "high", {"settings": Settings(variant="high")}),
        ("approve", "never", {"settings": Settings(approve="never")}),
        ("sandbox", "read_only", {"settings": Settings(sandbox="read_only")}),
        ("max-steps", "9", {"settings": Settings(max_steps=9)}),
        ("budget", "2", {"settings": Settings(turn_budget=Budget(cost=2.0))}),
        ("session-budget", "steps=2", {"settings": Settings(session_budget=Budget(steps=2))}),
        ("tools", "read,ls", {"settings": Settings(tools=("read", "ls"))}),
        ("follow-ups", "all", {"settings": Settings(follow_ups="all")}),
        ("title", "My own", {"title": "My own"}),
        ("variant", "", {"clear": ("variant",)}),
        ("budget", "", {"clear": ("turn_budget",)}),
    ],
)
def test_set_changes_one_setting_and_says_it(
    daemon: FakeDaemon, tiller: Tiller, name: str, value: str, changes: dict[str, Any]
) -> None:
    status, out, err = tiller("set", SESSION, name, value)
    assert (status, err) == (0, "")
    assert out.startswith(f"{name} of session {SESSION[-8:]} ")
    assert out.endswith(f" is now {value}\n" if value else " is back to its default\n")
    assert only(daemon, SessionConfigure) == SessionConfigure(SESSION, **changes)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("approve", "sometimes", "not a valid value for approve; give ask or always or never"),
        ("sandbox", "no", "give read_only or workspace_write or full_access"),
        ("follow-ups", "none", "give one_at_a_time or all"),
        ("max-steps", "many", "'many' is not a valid value for max-steps"),
        ("max-steps", "0", "give a whole number from 1 to 10,000"),
        ("max-steps", "10001", "give a whole number from 1 to 10,000"),
        ("budget", "lots", "is not a budget"),
        ("tools", "read,,ls", "'read,,ls' contains an empty name"),
        ("colour", "red", "invalid choice: 'colour'"),
    ],
)
def test_set_refuses_what_can_not_be_before_anything_is_sent(
    daemon: FakeDaemon, tiller: Tiller, name: str, value: str, said: str
) -> None:
    status, _, err = tiller("set", SESSION, name, value)
    assert status == 2
    assert said in err
    assert not [op for op in daemon.seen.values() if isinstance(op, SessionConfigure)]
