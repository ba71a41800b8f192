"""The log: an append-only store of events in SQLite.

`base.py` defines the log's interface. `database.py` runs transactions on the event loop or in a
thread. `projection.py` makes the rows by which requests are found. `wal.py` notices a write-ahead
log that is damaged or belongs to another file, `wal_length.py` one that was cut short. `backup.py`
copies the log. `search_index.py` is the full-text index, in a separate file.

# Search

The full-text index over all sessions (`search.db`, SQLite's FTS5) contains only texts from the log.
It needs no redaction, because the log holds no secrets.

A turn never waits for the index. When an event is published, the daemon only notes that the session
has changed. Five seconds later, or as soon as somebody searches, `session/searching.py` adds the
session's new texts to the index.

After its start, the daemon compares the index with the log in the background, and adds what is
missing. This also repairs the index after an upgrade, a crash or damage. Until the comparison has
finished, search results say how many sessions are missing.

The index is not in the log's file, because then a commit with a text of 60 words would take 0.26 ms
of CPU time instead of 0.08, and 0.67 ms beside 40,000 texts, where one in a hundred would hold up
the event loop for 14 ms. In its own transactions, which take many texts, a text takes 0.08 ms. Nor
can damage to the index keep a turn from being stored.
"""
