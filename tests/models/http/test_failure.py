"""What headers and error bodies mean, whatever a server puts into them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from support.providers import fixed_key
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.http.failure import (
    QUOTED_CHARS_MAX,
    Endpoint,
    error_from_event,
    error_from_response,
)
from tiller_daemon.models.http.retry_after import retry_after_s
from tiller_daemon.models.keys import Key, NoKey

KEY = "sk-canary-0123456789"
ENDPOINT = Endpoint("local", "http://h/v1", fixed_key(KEY))
NOW = 1_800_000_000.0


@each(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_a_wait_is_read_from_milliseconds_seconds_or_a_date(
    headers: dict[str, str], seconds: float | None
) -> None:
    """B46."""
    assert retry_after_s(headers, NOW) == seconds


@each(
    ("words", "seconds"),
    [
        ("Please try again in 11.054s. Visit …", 11.054),
        ("Please try again in 20ms.", 0.02),
        ("Please try again in 6m0s.", 360.0),
        ("Please try again in 1h2m3s", 3723.0),
        ("Please try again in a moment.", None),
        ("Please try again in 1.2.3s.", None),
    ],
)
def test_a_wait_is_read_from_words_where_no_header_can_say_it(
    words: str, seconds: float | None
) -> None:
    """B46."""
    body = b'{"error":{"code":"rate_limit_exceeded","message":"%s"}}' % words.encode()
    asked = error_from_event(ENDPOINT, body).retry_after_s
    assert asked == (None if seconds is None else pytest.approx(seconds))
    assert error_from_response(ENDPOINT, 429, {}, body, NOW).retry_after_s == asked
    assert error_from_response(ENDPOINT, 429, {"retry-after": "2"}, body, NOW).retry_after_s == 2


@given(
    milliseconds=st.text(),
    seconds=st.text() | st.from_regex(r"\w{3}, \d+ \w{3} \d+ \d+:\d+:\d+ (GMT|[+-]\d{4})"),
)
def test_no_header_can_break_it(milliseconds: str, seconds: str) -> None:
    asked = retry_after_s({"retry-after-ms": milliseconds, "retry-after": seconds}, NOW)
    assert asked is None or asked >= 0


@given(status=st.integers(300, 599), body=st.binary() | st.text().map(str.encode), at=st.integers())
def test_no_body_can_break_it_or_bring_out_the_key(status: int, body: bytes, at: int) -> None:
    """G13."""
    body = body[: at % (len(body) + 1)] + KEY.encode() + body[at % (len(body) + 1) :]
    for error in (
        error_from_response(ENDPOINT, status, {}, body, NOW),
        error_from_event(ENDPOINT, body),
    ):
        assert isinstance(error, ModelError)
        assert KEY not in error.message
        assert len(error.message) < QUOTED_CHARS_MAX + 300
        assert error.message.startswith("Provider local (http://h/v1) ")


def test_the_secret_is_not_in_the_endpoints_own_words() -> None:
    """G13."""
    assert KEY not in repr(ENDPOINT)
    assert KEY not in str(ENDPOINT)


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        (fixed_key(KEY), "Check the variable LOCAL_KEY"),
        (fixed_key(None), "Set the variable LOCAL_KEY"),
        (NoKey(), "`api_key_env`"),
    ],
)
def test_a_refused_key_is_told_by_where_it_comes_from(key: Key, advice: str) -> None:
    error = error_from_response(Endpoint("p", "http://h", key), 401, {}, b"", NOW)
    assert advice in error.message
    assert "`headers`" not in error.message
    assert not error.retryable


def test_a_refused_key_may_be_in_a_configured_header() -> None:
    error = error_from_response(Endpoint("p", "http://h", headers=(KEY,)), 401, {}, b"", NOW)
    assert "If the key is in `headers`, check it there." in error.message
