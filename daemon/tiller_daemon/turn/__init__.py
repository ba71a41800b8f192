"""The turn: one small function over a history, and the pure functions that it uses.

`loop.py` controls a turn (read this file first), `step.py` takes one step, and `after_step.py`
decides how the turn goes on. `retry.py` retries model requests, `response_limits.py` limits their
responses, and `assembly.py` makes items from the stream. `dispatch.py` decides when each call runs,
and `call.py` runs one call. `hosted_calls.py` makes the items of hosted tools' calls.
`compaction.py` keeps history within the context window. `unfinished.py` handles responses that are
cut off or empty. `closing.py` closes a turn. `user_command.py` runs a shell command from the user,
and `user_tasks.py` runs the sub-agents that an input calls. `history.py` holds the items,
`prompt.py` makes the system prompt, and `context.py` defines the turn's configuration. `ports.py`
defines the interfaces to the rest of the daemon.
"""
