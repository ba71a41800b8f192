"""Child processes: starting them, collecting their output, ending all that they started."""
