"""The library for frontends in Python: `blocking`, `for_trio` and `for_asyncio`.

These modules are public, and so are `tiller_client.errors` and `tiller_protocol`. All three speak
through the same code as `tiller` itself: submissions are executed once, events come once and in
order, both across restarts of the daemon.
"""
