"""Language servers: external programs that find errors in files that a tool has changed.

`servers` manages all servers and reports the errors that a change has caused. `server_process` runs
one server, whose open files are in `documents`. `json_rpc`, `framing` and `messages` implement the
protocol. `config.language_servers` lists the built-in servers; `definitions` chooses among them.

The daemon runs one language server for each root directory and kind of server, and ends servers
that have not been used for a while. When a call writes files, `session/calls/tool_call.py` compares
the errors in these files before and after the call, and reports the new ones. Separate tasks read
and write the servers' pipes. A turn only waits for the result, with a time limit. A server that
would run programs from the repository is started only if the user's configuration names it.
"""
