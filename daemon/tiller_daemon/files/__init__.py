"""The user's files: resolving paths, reading, writing and restoring files."""
