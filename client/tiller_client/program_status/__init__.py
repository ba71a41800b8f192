"""Tells the terminal what a session does, by the Program Status Protocol (OSC 7501); pure.

`report.py` encodes a record. `records.py` says which records a session has, or a list of sessions.
`changes.py` makes the escapes that bring the terminal's records up to date. The frontends write
them. The specification, revision 0.4, is at
https://www.superlogical.com/rex/docs/build/program-status.
"""
