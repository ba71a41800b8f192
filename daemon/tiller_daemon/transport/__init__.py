"""The transport between frontends and the daemon, and the runtime directory with its sockets.

`base.py` says what a transport does. `nng.py` implements it with nng sockets, and `memory.py`
within one process. The package also manages the runtime directory with the lock file and the token.
`state_directory.py` records the runtime directory's path in the state directory.
"""
