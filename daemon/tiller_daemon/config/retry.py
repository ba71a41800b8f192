"""The limits of retries, a part of the schema of the configuration."""

from typing import Annotated

from msgspec import Meta, Struct

RETRY_ATTEMPTS = 8
"""With the delays below they span a minute and a half, longer than the one-minute windows in which
providers count requests and tokens."""

RETRY_DELAY_S = 30.0

RETRY_AFTER_S = 600.0
"""Ten minutes: a user who comes back within them would have sent the same message again."""

RETRY_REFUSED_S = 300.0
"""Long enough for a local server to restart and load its weights. A wrong `base_url` shows in the
cause of the first wait."""

RETRY_TOTAL_S = 1_800.0
"""Three of the longest delays that a provider may ask for."""

DelaySeconds = Annotated[float, Meta(gt=0, le=86_400)]
Attempts = Annotated[int, Meta(ge=1, le=100)]


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how long failed requests to models are made again. Times are in seconds."""

    attempts: Attempts = RETRY_ATTEMPTS
    """Maximum number of attempts of a request, without those that met a refused connection."""
    delay_s: DelaySeconds = RETRY_DELAY_S
    """Longest delay between two attempts if the provider asks for none."""
    retry_after_s: DelaySeconds = RETRY_AFTER_S
    """Longest delay that a provider may ask for; a longer one ends the turn."""
    refused_s: DelaySeconds = RETRY_REFUSED_S
    """How long a server is waited for that refuses connections."""
    total_s: DelaySeconds = RETRY_TOTAL_S
    """Maximum sum of all delays of one request."""
