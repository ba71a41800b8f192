"""Rate limits in the headers of real providers, and in any others."""

from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.models.http.rate_limits import LIMITS_MAX, parse_rate_limits
from tiller_protocol.catalog import RateLimit

NOW = 1_800_000_000.0


def test_openai_reports_durations():
    headers = {
        "x-ratelimit-limit-requests": "5000",
        "x-ratelimit-remaining-requests": "4999",
        "x-ratelimit-reset-requests": "12ms",
        "x-ratelimit-limit-tokens": "800000",
        "x-ratelimit-remaining-tokens": "799970",
        "x-ratelimit-reset-tokens": "6m0s",
        "x-request-id": "req_1",
    }
    assert parse_rate_limits(headers, NOW) == (
        RateLimit("requests", 4999, 5000, NOW + 0.012),
        RateLimit("tokens", 799970, 800000, NOW + 360),
    )


def test_anthropic_reports_dates_and_puts_the_field_last():
    headers = {
        "anthropic-ratelimit-input-tokens-limit": "400000",
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2027-01-15T08:01:00Z",
    }
    assert parse_rate_limits(headers, NOW) == (RateLimit("input-tokens", 0, 400000, NOW + 60),)


def test_one_limit_without_a_name_is_of_requests_and_unix_times_are_understood():
    headers = {"x-ratelimit-remaining": "7", "x-ratelimit-reset": f"{(NOW + 5) * 1000:.0f}"}
    assert parse_rate_limits(headers, NOW) == (RateLimit("requests", 7, None, NOW + 5),)


@given(
    st.dictionaries(
        st.builds(
            lambda prefix, rest: prefix + rest,
            st.sampled_from(("x-ratelimit-", "anthropic-ratelimit-", "ratelimit-", "")),
            st.one_of(
                st.text(max_size=60), st.sampled_from(("remaining", "a-remaining", "reset-b"))
            ),
        ),
        st.one_of(st.text(max_size=20), st.integers().map(str)),
        max_size=30,
    )
)
def test_whatever_a_server_sends_is_bounded_and_never_an_error(headers):
    found = parse_rate_limits(headers, NOW)
    assert len(found) <= LIMITS_MAX
    assert all(one.remaining >= 0 for one in found)
    assert all(one.resets_at is None or one.resets_at >= NOW for one in found)
