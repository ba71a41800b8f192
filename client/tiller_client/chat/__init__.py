"""`tiller chat`: a session in a terminal, where the user reads, writes and answers.

Finished lines go to the terminal's own scrollback; only lines that still change are redrawn.
`conversation` decides which lines are finished, `app` runs the chat, `reading` renders items.
"""
