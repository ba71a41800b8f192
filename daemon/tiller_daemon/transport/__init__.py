"""Transports between frontends and the daemon, and the runtime directory with their sockets."""
