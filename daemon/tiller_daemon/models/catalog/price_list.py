"""A separate program that looks up models in the package `genai-prices`.

The package takes half a second and 15 MiB to load, so the daemon runs this program once for each
unknown model. `ModelRef`s are read as JSON from stdin; `Facts` or null for each go to stdout.
"""

import os
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from tiller_daemon.models.catalog.facts import Facts, ModelRef
from tiller_protocol.catalog import Price, PriceTier

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

NICENESS = 10
"""Low priority, so that the session's first turn, which usually runs meanwhile, is not slowed."""

COLUMNS = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
"""The package's names for the prices in a `Price`, in the same order."""


def main() -> None:
    """Read `ModelRef`s from stdin and write their facts to stdout."""
    os.nice(NICENESS)
    refs = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[ModelRef, ...])
    answer = tuple(look_up(one, datetime.now(UTC)) for one in refs)
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def look_up(ref: ModelRef, now: datetime) -> Facts | None:
    """Return the facts about a model at the time `now`; None if the package does not know it.

    The provider is matched by its base URL, because a local server may use any name for a model.
    """
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, model = get_snapshot().find_provider_model(ref.model, None, None, ref.base_url)
    except LookupError:
        return None
    return Facts(model.context_window, None, price_of(model.get_prices(now)))


def price_of(prices: "ModelPrice") -> Price | None:
    """Convert the package's prices: there, each price has tiers; here, each tier has all prices.

    Returns None if there is also a price per request, which prices per token can't express.
    """
    if getattr(prices, "requests_kcount", None) is not None:
        return None
    columns: list[object] = [getattr(prices, name, None) for name in COLUMNS]
    base = _at(columns, 0)
    if base is None:
        return None
    starts = sorted({tier.start for one in columns for tier in getattr(one, "tiers", ())})
    reached = [(start, _at(columns, start)) for start in starts]
    tiers = tuple(
        PriceTier(start, at.input, at.output, at.cached_input, at.cache_write)
        for start, at in reached
        if at
    )
    return structs.replace(base, tiers=tiers)


def _at(columns: list[object], start: int) -> Price | None:
    """Return the prices of a request with more than `start` input tokens."""
    plain, output, cached, written = (_number(one, start) for one in columns)
    if plain is None or output is None:
        return None
    return Price(plain, output, cached, written)


def _number(one: object, start: int) -> float | None:
    if isinstance(one, Decimal):
        return float(one)
    if not hasattr(one, "base"):
        return None
    reached = [tier.price for tier in getattr(one, "tiers", ()) if tier.start <= start]
    return float(reached[-1] if reached else getattr(one, "base", 0))


if __name__ == "__main__":
    main()
