"""Tells a user who looks at no frontend that a session needs them, has ended, or has failed.

`notifier.py` receives all life-cycle events, and `telling.py` decides when a rule applies.
`news.py` keeps what there is to tell of each session, and `messages.py` words it. `delivery.py`
brings the messages of one rule to its target, in a task of its own: a turn never waits for a
target. `targets.py` makes the targets, which are in `desktop.py` (D-Bus), `web.py` (HTTP) and
`programs.py` (commands and Apprise).

Nothing of this is in the log. After a restart of the daemon, what was open before is not told
again, and messages from before are not withdrawn.
"""
