"""What decoding JSON from outside may raise."""

import msgspec

DECODING_FAILS = (msgspec.DecodeError, ValueError, RecursionError)
"""For `msgspec` and `json`. `ValueError` is for bytes that are not UTF-8, and for integers that are
too long; `RecursionError` for values that are nested too deeply."""
