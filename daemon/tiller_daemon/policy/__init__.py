"""What a call may do. All of it pure.

`rules` decides about a call, `shell` about a command line: whether it is asked about, and where it
runs. `always` says what the answer `always` would allow.

Nothing here stops a command from doing anything: the enclosures in `sandbox` do.
"""
