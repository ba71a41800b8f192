"""What models cost: prices in US dollars per million tokens, and what some usage comes to. Pure."""

from typing import Annotated

from msgspec import Meta, Struct

from tiller_protocol.items import Usage

TOKENS_PER_PRICE = 1_000_000

Dollars = Annotated[float, Meta(ge=0)]


class PriceTier(Struct, frozen=True, omit_defaults=True):
    """Prices of a whole request whose input has more than `above` tokens."""

    above: Annotated[int, Meta(ge=1)]
    input: Dollars
    output: Dollars
    cached_input: Dollars | None = None
    cache_write: Dollars | None = None


class Price(Struct, frozen=True, omit_defaults=True):
    """Prices of one model; what is read from or written to a cache costs as input by default.

    Tokens of reasoning are output. The last tier that a request reaches is that of all its tokens.
    """

    input: Dollars
    output: Dollars
    cached_input: Dollars | None = None
    cache_write: Dollars | None = None
    tiers: tuple[PriceTier, ...] = ()

    def cost(self, usage: Usage) -> float | None:
        """What a request cost in US dollars; `None` when nobody counted its tokens."""
        if usage == Usage():
            return None
        reached = [tier for tier in self.tiers if usage.input_tokens > tier.above]
        price = max(reached, key=lambda tier: tier.above) if reached else self
        cached = price.input if price.cached_input is None else price.cached_input
        written = price.input if price.cache_write is None else price.cache_write
        plain = usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens
        dollars = (
            max(0, plain) * price.input
            + usage.cached_input_tokens * cached
            + usage.cache_write_tokens * written
            + usage.output_tokens * price.output
        )
        return dollars / TOKENS_PER_PRICE
