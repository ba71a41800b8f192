"""Child processes: starting them, collecting their output, ending everything they started."""
