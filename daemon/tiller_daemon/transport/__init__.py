"""Transports: how frontends reach the daemon."""
