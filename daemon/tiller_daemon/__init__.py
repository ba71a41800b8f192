"""The daemon `tillerd`: sessions, turns, models, tools, policy, log and sockets."""

from tiller_protocol import VERSION

DAEMON_VERSION = VERSION
"""What `hello` and `tiller daemon status` say."""
