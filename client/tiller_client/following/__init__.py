"""Follows sessions: delivers every event once, in order."""
