"""Language servers: programs of others that find errors in files which a tool has changed.

`servers` has them all and says what is new after a change; `server` is the life of one, with the
files it is shown; `connection` is the line to it, `framing` and `messages` are what goes over it.
Which servers there are is in `config.language_servers`; `definitions` says which are used
where.
"""
