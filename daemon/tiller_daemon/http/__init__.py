"""An HTTP/1.1 client on plain sockets: the hot path of every model's response.

This package handles connections, proxies, TLS and framing. `models.http` and `tools.web` decide
what a status means, which servers may be reached and what the user reads after a failure.
"""
