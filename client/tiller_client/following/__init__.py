"""Follows sessions: delivers every event once, in order.

`catchup.py` (pure) is the position in a session's log. `subscription.py` moves it on, with the
session's sockets and the clock. ACP waits for many subscriptions at a time. `feed.py` waits for one
in a thread, and `watch.py` for one, the keyboard and signals. `interactive.py` shows a session and
asks the user about its open requests. `typed.py` interprets the user's typed answers. `turn.py`
shows one turn. `snapshots.py` fetches a session's current state.
"""
