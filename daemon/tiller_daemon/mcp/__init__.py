"""MCP servers: programs and services of others whose tools models are offered beside our own.

`servers` has them all, `server` is the life of one, `tool` makes a tool of what one lists. Whatever
imports the MCP package (`connection` and what is below it) is imported when a server is started:
it takes a second and 40 MiB. A project can't name servers, so nothing here asks for trust.
"""
