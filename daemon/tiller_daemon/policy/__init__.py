"""What a call may do. All of it pure.

`rules` decides about a call, `enclosures` about a command line: whether it is asked about, and
where it runs. `command_line` splits a line into commands, `programs` knows what they are for, and
`always` what the answer `always` would allow.

Nothing here keeps a command from anything: the enclosures in `workspace` do.
"""
