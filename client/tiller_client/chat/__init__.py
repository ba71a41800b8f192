"""`tiller chat`: a session in a terminal, to read, to write and to answer in.

What is finished goes to the terminal's own scrollback; only what still changes is redrawn.
`conversation` decides what that is, `app` runs it, `reading` makes lines of items.
"""
