"""HTTP to a provider: the client, server-sent events, and what a failure means."""
