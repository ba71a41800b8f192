"""`tiller acp`: the Agent Client Protocol (ACP) on stdio, for editors.

It is a client of the daemon like the others: an editor speaks JSON-RPC with it, and each of the
editor's sessions is a session of the daemon. It never edits files or talks to a model.

`agent.py` has the methods of the Agent Client Protocol (ACP), and `session.py` handles one open
session. `authentication.py` runs the login that an editor can begin. `view.py` and `calls.py`
convert the session's events for an editor, and `diffs.py` reads their diffs. `prompts.py` converts
prompts, and `pending.py` keeps prompts that wait for a turn. `asking.py`, `approval.py` and
`questions.py` pass requests to the editor. `lending.py` lends the editor's MCP servers and unsaved
files to the session. `options.py` offers the session's settings. `rpc.py` reads and writes
messages. `schema.py` and `updates.py` define their fields.
"""
