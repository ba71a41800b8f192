"""The thin client `tiller`: talks to the daemon and imports none of its code.

This is a program, not a library: no name here is a public API. A frontend of your own needs
`tiller_protocol` only; `connection`, `watch` and `catchup` show how to use it.
"""
