"""The limits of retries, which are a part of the configuration's schema."""

from typing import Annotated

from msgspec import Meta, Struct

RETRY_ATTEMPTS = 8
"""The number of attempts. With the delays below, they span a minute and a half, which is longer
than the one-minute windows in which providers count requests and tokens."""

RETRY_DELAY_S = 30.0

RETRY_AFTER_S = 600.0
"""Ten minutes; a user who comes back within this time would have sent the message again anyway."""

RETRY_REFUSED_S = 300.0
"""Long enough for a local server to restart and load its weights. The reason for the first wait
reveals a wrong `base_url`."""

RETRY_TOTAL_S = 1_800.0
"""Enough for three of the longest delays that a provider may ask for."""

DelaySeconds = Annotated[float, Meta(gt=0, le=86_400)]
Attempts = Annotated[int, Meta(ge=1, le=100)]


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how long failed requests to models are repeated. Times are in seconds."""

    attempts: Attempts = RETRY_ATTEMPTS
    """The most attempts of a request, not counting attempts with a refused connection."""
    delay_s: DelaySeconds = RETRY_DELAY_S
    """The longest delay between two attempts if the provider asks for no delay."""
    retry_after_s: DelaySeconds = RETRY_AFTER_S
    """The longest delay that a provider may ask for; a longer delay ends the turn."""
    refused_s: DelaySeconds = RETRY_REFUSED_S
    """How long to wait for a server that refuses connections."""
    total_s: DelaySeconds = RETRY_TOTAL_S
    """The maximum sum of all delays of one request."""
