"""Language servers: external programs that find errors in files that a tool has changed.

`servers` manages all servers and reports the errors that a change has caused. `server_process` runs
one server, whose open files are in `documents`. `json_rpc`, `framing` and `messages` implement the
protocol. `config.language_servers` lists the built-in servers; `definitions` chooses among them.
"""
