"""Costs of requests: a price for each kind of token, tiers for long requests (G12 of money)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_protocol.catalog import Price, PriceTier
from tiller_protocol.items import Usage

SONNET = Price(
    3.0,
    15.0,
    cached_input=0.3,
    cache_write=3.75,
    tiers=(PriceTier(200_000, 6.0, 22.5, cached_input=0.6, cache_write=7.5),),
)


@each(
    ("price", "usage", "dollars"),
    [
        (Price(2.0, 10.0), Usage(1_000_000), 2.0),
        (Price(2.0, 10.0), Usage(0, 0, 1_000_000), 10.0),
        (Price(2.0, 10.0), Usage(1_000, 400, 100), 0.003),
        (Price(2.0, 10.0, cached_input=0.2), Usage(1_000, 400, 100), 0.00228),
        (Price(2.0, 10.0), Usage(0, 0, 1_000, reasoning_tokens=900), 0.01),
        (SONNET, Usage(10_000, 7_000, 1_000, 0, 2_000), 0.0276),
        (SONNET, Usage(200_000, 0, 0), 0.6),
        (SONNET, Usage(200_001, 0, 0), 1.200006),
        (SONNET, Usage(300_000, 100_000, 1_000, 0, 50_000), 1.3575),
        (Price(0.0, 0.0), Usage(5, 0, 5), 0.0),
        (SONNET, Usage(), None),
    ],
)
def test_tokens_cost_by_their_kind(price: Price, usage: Usage, dollars: float | None) -> None:
    assert price.cost(usage) == (None if dollars is None else pytest.approx(dollars))


def test_the_last_tier_that_is_reached_counts_in_whatever_order_they_are_named() -> None:
    tiers = (PriceTier(200, 3.0, 3.0), PriceTier(100, 2.0, 2.0))
    price = Price(1.0, 1.0, tiers=tiers)
    assert [price.cost(Usage(n)) for n in (100, 101, 201)] == [1e-4, 2.02e-4, 6.03e-4]


counts = st.integers(0, 2**40)


@given(
    price=st.builds(Price, *[st.floats(0, 1000)] * 2, *[st.none() | st.floats(0, 1000)] * 2),
    usage=st.builds(Usage, counts, counts, counts, counts, counts),
)
def test_nothing_is_paid_back(price: Price, usage: Usage) -> None:
    """Even if a provider counts more cached tokens than input tokens."""
    cost = price.cost(usage)
    assert cost is None or cost >= 0
