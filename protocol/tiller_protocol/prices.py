"""Models' prices in US dollars per million tokens, and the cost of usage. Pure."""

from typing import Annotated

from msgspec import Meta, Struct

from tiller_protocol.doc import doc
from tiller_protocol.items import Usage

TOKENS_PER_PRICE = 1_000_000

Dollars = Annotated[float, Meta(ge=0)]


class PriceTier(Struct, frozen=True, omit_defaults=True):
    """Prices for requests with long input, in US dollars per million tokens."""

    above: Annotated[
        int, Meta(ge=1), doc("The tier applies if the request has more input tokens than this.")
    ]
    input: Annotated[Dollars, doc("Input tokens.")]
    output: Annotated[Dollars, doc("Output tokens, including reasoning.")]
    cached_input: Annotated[
        Dollars | None, doc("Tokens read from a cache. Default: the price of `input`.")
    ] = None
    cache_write: Annotated[
        Dollars | None, doc("Tokens written to a cache. Default: the price of `input`.")
    ] = None


class Price(Struct, frozen=True, omit_defaults=True):
    """Prices of a model in US dollars per million tokens."""

    input: Annotated[Dollars, doc("Input tokens.")]
    output: Annotated[Dollars, doc("Output tokens, including reasoning.")]
    cached_input: Annotated[
        Dollars | None, doc("Tokens read from a cache. Default: the price of `input`.")
    ] = None
    cache_write: Annotated[
        Dollars | None, doc("Tokens written to a cache. Default: the price of `input`.")
    ] = None
    tiers: tuple[PriceTier, ...] = ()
    """Prices for long input; the highest tier that a request reaches applies to all its tokens."""

    def cost(self, usage: Usage) -> float | None:
        """Cost of a request in US dollars; `None` if its tokens were not counted."""
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
