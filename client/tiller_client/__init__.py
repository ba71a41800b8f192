"""The thin client `tiller`: talks to the daemon, imports none of it."""
