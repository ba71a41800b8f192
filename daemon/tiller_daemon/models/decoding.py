"""The exceptions that decoding JSON from outside may raise."""

import msgspec

DECODING_FAILS = (msgspec.DecodeError, ValueError, RecursionError)
"""The exceptions of both `msgspec` and `json`. `ValueError` is raised for invalid UTF-8 and huge
integers, `RecursionError` for values that are nested too deeply."""
