"""Decides whether a call may run. All modules are pure.

`rules` decides about calls. `shell` decides about command lines: whether the user is asked, and in
which enclosure a line runs. `always` computes what the answer `always` allows.

Nothing here stops a command from doing anything; only the enclosures in `sandbox` do.
"""
