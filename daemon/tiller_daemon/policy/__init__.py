"""Decides whether a call may run. All modules are pure.

`rules` decides about calls. `shell` decides about command lines: whether the user is asked, and in
which level a line runs. `always` finds the patterns that the answers `always` and `always_here`
allow, and `readable` decides which files may be shown without asking.

Nothing here stops a command from doing anything; only the sandboxes in `sandbox` do.

# Lasting rules

If the user answers a request with `always_here`, the daemon stores rules for the workspace in a
file beside the user's configuration (`config/lasting_rules.py`). These rules are not frozen with a
turn's context. They are read again for each verdict, so changes take effect at once in every
session. A lasting rule wins over every other rule except a denial (`last_match` in
`policy/shell/levels.py`).

The rules are stored before the request is resolved. If they can't be stored, the request stays
open. If the daemon dies before the request is resolved, the rules stay stored.
"""
