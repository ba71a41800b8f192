"""Follows sessions: delivers every event once, in order.

`catchup.py` (pure) is the position in a session's log. `watch.py` moves it on, with the session's
sockets and the clock. Verbs wait for it, the keyboard and signals. ACP waits for many sessions, and
`feed.py` for one, in a thread. `overview.py` keeps the lists of sessions of several hosts up to
date. `interactive.py` shows a session and asks the user about its open requests. `typed.py`
interprets the user's typed answers. `turn.py` shows one turn. `snapshots.py` fetches a session's
current state.
"""
