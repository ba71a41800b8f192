"""Finds, starts and connects to the daemon.

`runtime.py` finds out where the daemon's sockets are, `daemons.py` reaches the daemon on this
machine, and `starting.py` starts it. `remote.py` reaches a daemon on another machine through ssh,
and `fleet_daemon.py` over a fleet; `linked.py` has what both do. `hosts.py` reads which machines
have names, and `fan_out.py` asks several of them at the same time.
`connection.py` submits ops, and `pool.py` shares connections between threads. `nng_pipe.py` speaks
nng's wire format itself, because importing pynng is slow. If the daemon does not answer,
`silence.py` tells the user what the verb waits for.

# Starting quickly

A verb of `tiller` first imports only what it needs to submit its op. It imports the rest while the
daemon works. If no daemon is running, `tiller exec` starts one before its own imports. The daemon
imports some modules later, when it is idle (`idle_imports.py`). Right after the daemon's start, a
thread finds out which sandbox works (`Sandboxes.prepare`). `tests/client/test_imports.py` limits
the client's first imports, and `tests/e2e/test_imports.py` the daemon's.

After a crash of the daemon, each of its frontends starts a new daemon, but only one of the new
daemons gets the lock. If the user then stops that daemon, a late frontend must not replace it.
Therefore each frontend passes the stamp of the crashed daemon's token file to the daemon that it
starts. If the file has another stamp now, a daemon has run since the crash. Then the daemon that
the frontend has started exits (`transport/runtime.py`).
"""
