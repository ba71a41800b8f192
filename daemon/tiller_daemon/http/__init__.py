"""An HTTP/1.1 client on plain sockets: the hot path of every model's response.

This package handles connections, proxies, TLS and framing. `models.http` and `tools.web` decide
what a status means, which servers may be reached and what the user reads after a failure.

`route.py` opens connections to permitted addresses only. `pool.py` keeps connections.
`connection.py` sends a request and reads its response, which `head.py` and `body.py` parse.
`wire.py` and `tls.py` carry the bytes.
"""
