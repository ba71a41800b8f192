"""Verbs about one machine, its files and its processes; with `--host` they run there."""
