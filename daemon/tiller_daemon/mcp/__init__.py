"""MCP servers: external programs and services whose tools are offered to models beside our own.

`servers.py` manages all MCP servers. `loans.py` manages servers that are lent to single sessions.
`managed_server.py` connects one server, and `tool.py` adapts the server's tools to the daemon.
`mending.py` mends odd answers of servers, and `schemas.py` makes the tools' schemas acceptable to
every provider.
Modules that import the library `mcp`, such as `client.py`, are loaded when the first server starts,
as this takes a second and 40 MiB. A project can't configure servers, so nothing here asks about
trust.

All sessions share the daemon's MCP servers, whose tasks run in a nursery that outlives every
session. A turn's tools are frozen with its context, so a tool that a server adds is available from
the next turn on.

For each call of an MCP tool, the server's connection has a task. This task sends the call. If the
call is cancelled, the task tells the server. While the call runs, the turn's task shows its
progress, asks the user the server's questions, and waits for the result. It never talks to the
server itself, so an interrupt never waits for a server.

A frontend may lend MCP servers to a session with the op `session_lend`. `tiller acp` lends the
editor's servers. `mcp/loans.py` manages these loans. A loan has a lease, which the frontend renews
from time to time. Loans may hold secrets, so they are not in the log. Because a restarted daemon
has no loans, a frontend also renews its loan before each input. A running turn keeps its lent
servers even if the loan ends.

A loan may also let the daemon ask an editor for a file's text, including unsaved changes. Before a
call uses a file, `session/editor_files.py` asks for the file's text over the event socket. If there
are unsaved changes, `read` shows the editor's text, and a call that would write the file is
refused. The daemon checks for unsaved changes before it asks the user for approval, and again
before the call runs (`session/calls/tool_call.py`). If the editor does not answer in time, the call
uses the file on disk. An editor that has not reloaded a file may send an old version. Therefore a
text counts as unsaved only if it differs from all versions of the file that the daemon has seen on
disk.

An input may name prompts and resources of MCP servers. The supervisor reads their text before the
session handles the input (`session/inputs/server_content.py`). This text is kept apart from the
user's own text, because only the user's text may call commands and sub-agents.

The op `mcp_login` starts a login in a separate task (`mcp/logins.py`). The MCP package's OAuth
client talks to the server (`oauth.py`). `login_addresses.py` sends its requests to other servers by
the rules of `fetch`, and `redirect.py` waits for the browser. Then `login_store.py` stores the
tokens, and the daemon reconnects to the server. A connection uses and refreshes stored tokens, but
never starts a login. If the tokens no longer work, the server's state is `needs_login`.
"""
