"""Sessions: the actor, its state, and the connection of turns with the log and frontends.

`actor.py` has a session's loop, and `handlers.py` has one function per op. `supervisor.py` creates
sessions and routes ops to them. `loaded_sessions.py` keeps sessions in memory. `queries.py` answers
ops that only read, `about_daemon.py` says what the daemon offers and how it is doing, and
`searching.py` searches all sessions. `outbox.py` stores and publishes events; `app.py` lists who
receives them (`publish_to`). `clock.py` tells the time of events, without jumps within a turn.
`requests.py` keeps open requests, and `rules.py` grants and revokes rules. `lending.py` checks the
MCP servers that frontends lend. `followers.py` knows which frontends have a session open.
`editor_files.py` asks frontends for the text of unsaved files. `recovery.py` loads a session and
closes a turn that a crash left unfinished. `reverting.py` reverts files together with history.
`hooks.py` applies the answers of hooks.

# How a submission is idempotent

A submission that is sent twice has one effect and one answer. If the first copy is still being
handled, the second copy waits for the same answer. Otherwise the supervisor looks for the
submission's id in the log's table of answers. The answer is stored in the same transaction as the
submission's events, together with a digest of the op. If the id is used again for a different op,
that op is rejected. Rejections are stored, too, except temporary ones (`overloaded`,
`shutting_down`, `unavailable`, `internal`).

# How deltas are joined

The first delta of a stream is sent at once. Deltas that arrive within 20 ms after a commit are
joined into one event, unless another event comes between them. A fast stream thus needs one commit
per 20 ms instead of one per token, while a frontend still gets fifty updates a second. Most events
about steps and calls also wait up to 20 ms, to share a commit. Before a turn starts a call that may
write, it waits until all events so far are committed (`committed`).

# Crash-only sessions

If the log can't be written, the session and all its tasks and processes end at once. The next op
loads the session from the log and closes its open turn. If the log still can't be written, the
turn's end is not in the log yet. `session/queries.py` nevertheless tells frontends that the turn
has ended. An unexpected exception in a turn ends only that turn, with the outcome `failed`.

When the daemon starts, it first restores files that an unfinished call was changing. This is
possible because tools make all their changes through `files/changes.py`. Then, before its sockets
open, the daemon closes all unfinished turns. With the setting `resume = "auto"`, it instead
continues these turns if it can (`session/turns/resuming.py`), and their earlier spending still
counts.
"""
