"""What is known of a model: how much it can be told and can say, and what it costs. Pure.

Who knows it: the user (configuration), the provider (`listing`), a package of prices
(`price_list`). `catalog` keeps it.
"""

from msgspec import Struct

from tiller_protocol.prices import Price


class Facts(Struct, frozen=True, omit_defaults=True):
    """Tokens and prices; `None` is what nobody told."""

    context_window: int | None = None
    max_output: int | None = None
    price: Price | None = None

    def over(self, below: "Facts") -> "Facts":
        """These facts, and those of `below` where nothing is known here."""
        return Facts(
            self.context_window or below.context_window,
            self.max_output or below.max_output,
            self.price or below.price,
        )


class ModelRef(Struct, frozen=True):
    """Which model is meant: by where its provider is, and what that calls it."""

    base_url: str
    model: str
