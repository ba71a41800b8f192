"""What failures mean, as many providers say them (B42, B46); and how long they ask to wait."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.http.provider_failures import OVERFLOW, Row, error
from models.http.provider_limits import LIMITS
from models.http.provider_refusals import REFUSALS
from support.each import each
from support.providers import fixed_key
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.http.error_body import FIELDS_MAX, ErrorDetails, parse_error_body
from tiller_daemon.models.http.failure import Endpoint, error_from_event, error_from_response
from tiller_daemon.models.http.retry_after import retry_after_s
from tiller_daemon.models.keys import NoKey

ENDPOINT = Endpoint("local", "http://h/v1", fixed_key("sk-canary-0123456789"))
NOW = 1_800_000_000.0
ROWS = (*OVERFLOW, *LIMITS, *REFUSALS)


def failure(row: Row, **headers: str) -> ModelError:
    if row.status is None:
        return error_from_event(ENDPOINT, row.data)
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return error_from_response(ENDPOINT, row.status, fields, row.data, NOW)


@each("row", ROWS)
@pytest.mark.promise("B46")
def test_a_failure_has_the_kind_that_its_provider_means(row: Row) -> None:
    found = failure(row)
    assert found.kind == row.kind
    assert found.retry_after_s == (None if row.asked_s is None else pytest.approx(row.asked_s))


def test_what_money_heals_is_not_tried_again_and_what_time_heals_is() -> None:
    for row in ROWS:
        healed = row.kind in ("rate_limit", "overloaded", "server", "timeout")
        assert failure(row).retryable == healed, row.who


def test_a_quota_that_comes_back_soon_is_a_limit_of_rate() -> None:
    """Azure says `insufficient_quota` of a minute, with the seconds that are left of it."""
    row = Row("Azure", 429, error("x", code="insufficient_quota"), "quota")
    assert failure(row).kind == "quota"
    assert failure(row, retry_after="26").kind == "rate_limit"
    assert failure(row, retry_after="86400").kind == "quota"


def test_a_limit_of_a_plan_is_none_of_rate_however_short_the_wait() -> None:
    row = Row("", 429, error("x", code="subscription_sharing_usage_limit_exceeded"), "quota")
    assert failure(row, retry_after="60").kind == "quota"


@each(
    ("body", "headers", "end"),
    [
        ({"resets_at": NOW + 3600}, {}, 3600),
        ({"resets_at": "2027-01-15T09:00:00Z"}, {}, 3600),
        ({}, {"retry_after": "7200"}, 7200),
        ({"resets_at": "soon"}, {}, None),
        ({"resets_at": 5}, {}, None),
        ({}, {}, None),
    ],
)
def test_the_end_of_a_limit_is_told_where_the_provider_tells_it(
    body: dict[str, object], headers: dict[str, str], end: float | None
) -> None:
    row = Row("", 429, error("x", code="insufficient_quota", **body), "quota")
    told = re.search(r"It ends at (\S+ \S+)", failure(row, **headers).message)
    shown = end and f"{datetime.fromtimestamp(NOW + end).astimezone():%Y-%m-%d %H:%M}"
    assert (told and told[1]) == shown


def test_a_login_that_is_not_permitted_needs_no_other_login() -> None:
    class Login(NoKey):
        noun, forbidden_advice = "login", "Not here."

        @property
        def advice(self) -> str:
            return "Log in."

    endpoint = Endpoint("p", "http://h", Login())
    refused = error_from_response(endpoint, 403, {}, b"", NOW).message
    assert "refused the request. Not here." in refused
    assert (
        "requires a valid login. Log in." in error_from_response(endpoint, 401, {}, b"", 0).message
    )


def test_a_refusal_of_images_is_not_tried_again() -> None:
    body = b'{"error": {"code": 500, "message": "image input is not supported", "type": "x"}}'
    assert not error_from_response(Endpoint("local", "http://h"), 500, {}, body, 0.0).retryable


def test_a_provider_that_says_not_to_retry_is_obeyed() -> None:
    row = Row("OpenAI", 429, "", "rate_limit")
    assert failure(row).retryable
    assert failure(row, x_should_retry="true").retryable
    assert not failure(row, x_should_retry="false").retryable


def test_the_reason_that_a_gateway_was_told_is_told_on() -> None:
    rows = {row.who: row for row in ROWS if row.who.startswith("OpenRouter")}
    said = failure(rows["OpenRouter, on behalf of another"]).message
    assert "Provider returned error: prompt is too long: 201266 tokens" in said


@each(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "6m0s"}, None),
        ({"x-ratelimit-reset-tokens": "6m0s"}, None),
        (
            {
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "20ms",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1.5s",
            },
            1.5,
        ),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2027-01-15T08:00:45Z",
            },
            45,
        ),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{(NOW + 30) * 1000:.0f}"}, 30),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 30:.0f}"}, 30),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "30"}, 30),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, None),
        ({"retry-after": "2027-01-15T08:00:45Z"}, 45),
        (
            {
                "retry-after": "7",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "6m0s",
            },
            7,
        ),
    ],
)
def test_limits_that_are_used_up_say_when_they_are_whole_again(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert datetime.fromtimestamp(NOW, UTC).isoformat() == "2027-01-15T08:00:00+00:00"
    assert retry_after_s(headers, NOW) == seconds


@each(
    ("sentence", "seconds"),
    [
        ("Please try again in 1m30s.", 90),
        ("try again in 2 hours, or pay", 7200),
        ("Retry after 1 minute", 60),
        ("resets in 1 day 2 hours", 93_600),
        ("try again in 5 fortnights", None),
        ("try again later", None),
        ("", None),
    ],
)
def test_a_wait_in_words_is_read(sentence: str, seconds: float | None) -> None:
    assert retry_after_s({}, NOW, ErrorDetails((sentence,))) == seconds


json_like = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "code", "details", "raw", "type", "retryDelay", "x"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=40,
)


@given(told=json_like, status=st.integers(300, 599))
def test_no_shape_of_a_body_can_break_it(told: object, status: int) -> None:
    found = failure(Row("x", status, told, "server"))
    assert found.retry_after_s is None or found.retry_after_s >= 0
    assert failure(Row("x", None, told, "server")).message


def test_a_huge_body_is_looked_through_in_part() -> None:
    """G12."""
    said = parse_error_body(
        b"[" + b",".join([b'{"message":"%d"}' % n for n in range(5_000)]) + b"]"
    )
    assert len(said.sentences) <= FIELDS_MAX
    deep = b'{"error":' * 3_000 + b"1" + b"}" * 3_000
    assert len(parse_error_body(deep).text) < 100_000
