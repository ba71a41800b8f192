"""The thin client `tiller`: talks to the daemon and imports none of its code.

Its library for other frontends is `tiller_client.api`; apart from that and `errors`, no name here
is public.
"""
