"""What a rule tells: each request once, nothing that is over, and only what the rule is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.config import Notify
from tiller_daemon.notify.messages import TEXT_CHARS_MAX, message_about, text_of_request
from tiller_daemon.notify.news import SessionNews, Told, moment_of
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import Outcome, TurnEnded
from tiller_protocol.items import Request, Usage

ALL = Notify("desktop")
SESSION = "s"


def end(
    outcome: Outcome = "completed", code: str = "", message: str = "", duration_s: float = 60.0
) -> TurnEnded:
    error = ErrorInfo(code, message) if code else None
    return TurnEnded(outcome, 1, Usage(), duration_s, message, error=error)


def request(request_id: str, title: str = "Run ls") -> Request:
    return Request(request_id, "approval", title)


@pytest.mark.parametrize(
    ("body", "moment"),
    [
        (end(), "ended"),
        (end("failed", "server"), "failed"),
        (end("failed", "quota"), "limit"),
        (end("failed", "rate_limit"), "limit"),
        (end("limit_reached", "max_steps"), "limit"),
        (end("blocked", "hook"), "failed"),
        (end("blocked", "rejected"), None),
        (end("interrupted"), None),
    ],
)
def test_the_end_of_a_turn_is_a_moment_unless_the_user_ended_it(
    body: TurnEnded, moment: str | None
) -> None:
    assert moment_of(body) == moment


def test_a_short_turn_that_completes_is_not_told_but_its_failure_is() -> None:
    news, told = SessionNews(), Told(Notify("desktop", after_s=30))
    news.ended(end(duration_s=29), "t", "Done.", 1)
    assert not told.untold(SESSION, news)
    news.ended(end("failed", "server", duration_s=1), "t", "No.", 2)
    assert told.untold(SESSION, news)


def test_a_rule_tells_only_its_moments() -> None:
    news = SessionNews()
    news.opened(request("r"), "Run ls", 1)
    assert not Told(Notify("desktop", on=("ended",))).untold(SESSION, news)
    assert Told(Notify("desktop", on=("needs_answer",))).untold(SESSION, news)


def test_what_was_seen_is_not_told_but_what_is_open_stays() -> None:
    news = SessionNews()
    news.ended(end(), "t", "Done.", 7)
    news.seen(6)
    assert len(list(news)) == 1
    news.seen(7)
    assert not list(news)
    news.opened(request("r"), "Run ls", 8)
    news.seen(9)
    assert len(list(news)) == 1


DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["open", "resolve", "end", "begin", "see", "tell"]), st.integers(0, 5)
    ),
    max_size=60,
)


@given(DEEDS)
def test_each_request_is_told_once_and_what_is_over_is_withdrawn(
    deeds: list[tuple[str, int]],
) -> None:
    news, told = SessionNews(), Told(Notify("desktop", after_s=0))
    open_ids: set[str] = set()
    times_new: dict[str, int] = {}
    shown: set[str] = set()
    for seq, (deed, number) in enumerate(deeds, 1):
        name = f"r{number}"
        match deed:
            case "open":
                if name not in times_new:
                    news.opened(request(name), "Run ls", seq)
                    open_ids.add(name)
                    times_new.setdefault(name, 0)
            case "resolve":
                news.resolved(name)
                open_ids.discard(name)
            case "end":
                news.ended(end(), f"t{seq}", "Done.", seq)
                open_ids.clear()
            case "begin":
                news.began()
            case "see":
                news.seen(seq)
            case _:
                before = set(shown)
                if untold := told.untold(SESSION, news):
                    told.tell(SESSION, untold)
                    for one in untold:
                        times_new[one.key] = times_new.get(one.key, 0) + (one.key not in before)
                    shown = {one.key for one in untold}
                    assert untold[-1].key not in before, "the newest comes last"
        is_over = bool(shown) and not shown & {one.key for one in news}
        assert told.is_over(SESSION, news) == is_over
        shown = set() if is_over else shown & {one.key for one in news}
        assert {one.key for one in news if one.moment == "needs_answer"} == open_ids
    assert all(times <= 1 for times in times_new.values())


def test_a_message_names_the_session_and_hides_secrets() -> None:
    secret = "sk-0123456789abcdef"
    asked = Request(
        "r1",
        "approval",
        "Run curl",
        detail=f"curl -H 'X: {secret}' https://me:hunter2@example.com/",
        detail_kind="command",
    )
    text = text_of_request(asked, (secret,))
    news = SessionNews()
    news.opened(asked, text, 1)
    news.opened(request("r2"), "Run ls", 2)
    message = message_about("s", f"Pay {secret}", "/work/shop", list(news), (secret,))
    assert secret not in f"{message.title}{text}"
    assert "hunter2" not in text
    assert message.title.startswith("Needs an answer: Pay")
    assert message.text == "Run ls\n(and 1 more)"
    assert message.request_id == "r2"


def test_no_secret_is_cut_in_two_and_no_diff_is_sent() -> None:
    secret = "sk-0123456789abcdef"
    long = Request("r", "approval", "Run", detail="x" * (TEXT_CHARS_MAX - 10) + secret)
    assert "sk-0" not in text_of_request(long, (secret,))
    edit = Request("r", "approval", "Edit a.py", detail="-old\n+new", detail_kind="diff")
    assert text_of_request(edit, ()) == "Edit a.py"
