"""A fleet: several hosts on one NATS server, each with a daemon and a gateway.

The gateway is a frontend like others, so the daemon knows nothing of the fleet. `gateway` puts its
parts together: `lease` holds the host's name, `dispatcher` takes tasks and `worker` does them,
`publisher` copies events to the broker, and `reception` answers requests from other hosts.
`publications` reads what the daemon publishes, for both. `link` is the other end of `reception`:
the `sockets` of a far daemon, for frontends on this machine, in a process of its own
(`link_program`). `topics` says what goes over a link live.

`broker`, `parts`, `table`, `sealing` and `names` are the connection to NATS. `records` has what the
tables hold. This package needs the extra `fleet`, and runs on asyncio, as the client for NATS does.
"""
