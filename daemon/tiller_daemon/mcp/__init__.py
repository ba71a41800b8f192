"""MCP servers: external programs and services whose tools are offered to models beside our own.

`servers` manages all servers, `managed_server` connects and reconnects one server, and `tool` turns
a listed tool into one of ours. `client` and the modules it uses import the MCP package, which takes
a second and 40 MiB, so they are loaded when the first server starts. A project can't configure
servers, so nothing here asks about trust.
"""
