"""Judges by its text what a shell command line seems to do.

`command_line.py` splits a line into commands. `purposes.py` finds a command's purpose in the table
`programs.py`. `levels.py` chooses the level. `network.py` decides whether the line may use
the network.
"""
