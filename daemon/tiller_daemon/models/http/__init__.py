"""HTTP to a provider: the client, server-sent events, and the interpretation of failures."""
