"""HTTP to a provider: the client, server-sent events, and the interpretation of failures.

`client.py` sends requests to one provider. `sse.py` parses server-sent events, and
`reading_pace.py` decides how often streams are read. `failure.py` interprets failed responses, and
`rate_limits.py` parses rate limits.
"""
