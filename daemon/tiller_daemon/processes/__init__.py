"""Child processes: how they start, how their output is collected, how all of them are ended."""
