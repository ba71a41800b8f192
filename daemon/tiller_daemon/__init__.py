"""The daemon `tillerd`: sessions, turns, models, tools, policy, log and sockets."""

DAEMON_VERSION = "0.1.0"
"""Said in `hello` and by `tiller daemon status`; the same as in pyproject.toml."""
