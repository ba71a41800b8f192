"""The log: an append-only table of events in SQLite."""
