"""Checks and completes the input that frontends send to a session."""
