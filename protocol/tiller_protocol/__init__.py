"""The tiller wire: ops, events, items and the rules that tie them together.

Needs msgspec and the standard library only, so that a frontend can depend on it alone. Import
from the modules; this package re-exports nothing.
"""

PROTOCOL_VERSION = 1
"""The version a frontend states in `hello`; it changes only when a name of the wire changes."""
