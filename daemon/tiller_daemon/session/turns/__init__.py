"""Turns of a session: how they begin, run and resume, and what they leave behind."""
