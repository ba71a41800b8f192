"""Following sessions: every event once, in order."""
