"""`tiller board`: all sessions of all hosts in one window, live.

`sessions.py` (pure) says what a session's row shows, and `filtering.py` (pure) which rows are
shown. `state.py` (pure) is the board's state: news of the hosts go in, and by `keys.py` (pure) the
user's keys, which may ask for `acts.py`. `frame.py` and `rows.py` (pure) make the window from the
state. `line.py` (pure) is a text that the user types. `opening.py` draws the first frame, before
the slow import of what reads keys. `app.py` wires the parts, and `acting.py` carries out the acts.
`plain.py` prints the same as lines, or as JSON.

The news come from `following/overview.py`; the terminal and the answers to requests are those of
the chat.
"""
