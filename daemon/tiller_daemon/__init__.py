"""The daemon `tillerd`: sessions, turns, models, tools, policy, log and sockets."""

from tiller_protocol import VERSION

DAEMON_VERSION = VERSION
"""The version that `hello` and `tiller daemon status` report."""
