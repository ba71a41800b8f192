"""The wire protocol of tiller: ops, events, items, and the rules that connect them.

It needs only msgspec and the standard library, so that a frontend can depend on it alone. Import
from the modules; this package re-exports nothing.

`op_traits.py` says what is true of each op: who handles it and what it may start. The package needs
only msgspec and does no I/O.
"""

VERSION = "0.1.0"
"""The version of daemon, command line and protocol, which are released together."""

PROTOCOL_VERSION = 1
"""The version that a frontend sends in `hello`; changes only with incompatible changes."""
