"""The log: an append-only store of events in SQLite."""
