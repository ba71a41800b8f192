"""The library for frontends in Python: `blocking`, `for_trio` and `for_asyncio`.

These modules are public, and so are `tiller_client.errors` and `tiller_protocol`. They use the same
code as `tiller` itself. Even if the daemon restarts, each submission is executed once, and each
event arrives once and in order.
"""
