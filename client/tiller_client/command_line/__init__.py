"""The command line: its verbs and options, and the sessions, files and texts that they name."""
