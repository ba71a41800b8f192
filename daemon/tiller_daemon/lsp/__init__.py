"""Language servers: external programs that find errors in files that a tool has changed.

`servers` has all of them and reports what is new after a change; `server_process` runs one, with
its open files in `documents`; `json_rpc`, `framing` and `messages` are the protocol. The built-in
servers are in `config.language_servers`; `definitions` chooses among them.
"""
