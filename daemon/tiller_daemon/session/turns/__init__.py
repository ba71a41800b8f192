"""Turns of a session: how they begin, run, resume and end, and their changes in files."""
