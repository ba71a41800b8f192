"""Finds, starts and connects to the daemon."""
