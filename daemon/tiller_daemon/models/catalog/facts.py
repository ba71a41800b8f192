"""Facts about a model: its context window, its output limit and its price. Pure.

Facts come from the configuration, from the provider (`listing`), or from a package of prices
(`price_list`). `catalog` caches the facts from the last two.
"""

from msgspec import Struct

from tiller_protocol.catalog import Price


class Facts(Struct, frozen=True, omit_defaults=True):
    """Limits in tokens, and prices. None means unknown."""

    context_window: int | None = None
    max_output: int | None = None
    price: Price | None = None

    def over(self, below: "Facts") -> "Facts":
        """Return these facts, with unknown values filled in from `below`."""
        return Facts(
            self.context_window or below.context_window,
            self.max_output or below.max_output,
            self.price or below.price,
        )


class ModelRef(Struct, frozen=True):
    """Identifies a model by the base URL of its provider and the provider's name for it."""

    base_url: str
    model: str
