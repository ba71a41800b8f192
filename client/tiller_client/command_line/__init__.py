"""The command line: its verbs and options, and what they refer to."""
