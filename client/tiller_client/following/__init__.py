"""Follows sessions: delivers every event once, in order.

`catchup.py` is the state machine. Verbs run it through `watch.py`, which also waits for the
keyboard and signals. Programs with threads run it through `feed.py`. `interactive.py` shows a
session and asks the user about its open requests. `typed.py` interprets the user's typed answers.
`turn.py` shows one turn. `snapshots.py` fetches a session's current state.
"""
