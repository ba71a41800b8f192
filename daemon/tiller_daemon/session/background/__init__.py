"""Background commands and sub-agents, which outlive the turn that started them.

`commands.py` runs background commands, `listing.py` lists all background work, and `jobs.py` gives
tools access to it. `delivering.py` delivers the reports of sub-agents.

A background command belongs to its session, so interrupting the turn that started it does not stop
the command. The command ends when its session is archived or deleted, or when the daemon stops. A
sub-agent's background commands end with the sub-agent. A session with a running background command
stays loaded. The event `background_changed` lists the background commands.
"""
