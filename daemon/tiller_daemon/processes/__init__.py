"""Child processes: how they start, how their output is collected, how all of them are ended.

`command.py` runs one command. `capture.py` keeps its output, and `terminal_text.py` reduces it to
what a terminal shows in the end. `fork_server.py` and `reaper.py` start processes and make sure
that all of them end. `environment.py` chooses environment variables. `server_process.py` runs a
program that serves the daemon over pipes.
"""
