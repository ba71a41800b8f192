"""An HTTP/1.1 client on plain sockets: the hot path of every model's response.

It knows connections, proxies, TLS and framing. What a status means, who may be asked and what a
user reads of a failure is up to `models.http` and `tools.web`.
"""
