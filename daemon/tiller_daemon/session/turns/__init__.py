"""Turns of a session: how they begin, run, resume and end, and their changes in files.

`starting.py` starts a turn, `active_turn.py` runs it, and `resuming.py` resumes it after a restart.
`wiring.py` connects a turn with its session: it makes the turn's ports.
`turn_changes.py` makes the patches. `idle_histories.py` caches histories for the next turn.
`title.py` gives the session a title.
"""
