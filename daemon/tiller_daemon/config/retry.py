"""The limits of retries, which are a part of the configuration's schema."""

from typing import Annotated

from msgspec import Meta, Struct

from tiller_daemon.config.model_schema import Seconds


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how long failed requests to models are repeated. Times are in seconds."""

    attempts: Annotated[int, Meta(ge=1, le=100)] = 8
    """The most attempts of a request, not counting attempts during an outage. With the
    delays below, the default spans a minute and a half, which is longer than the one-minute windows
    in which providers count requests and tokens."""
    delay_s: Seconds = 30.0
    """The longest delay between two attempts if the provider asks for no delay."""
    retry_after_s: Seconds = 600.0
    """The longest delay that a provider may ask for; a longer delay ends the turn. A user who comes
    back within ten minutes would have sent the message again anyway."""
    outage_s: Seconds = 900.0
    """How long to wait for a server that refuses connections, or reports that it can't serve for
    the moment. The default outlives an outage of ten minutes, in spite of the growing delays. The
    reason for the first wait reveals a wrong `base_url`."""
    total_s: Seconds = 1_800.0
    """The maximum sum of all delays of one request. The default is enough for three of the longest
    delays that a provider may ask for."""
