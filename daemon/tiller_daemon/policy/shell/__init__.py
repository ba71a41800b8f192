"""Judges by its text what a shell command line seems to do."""
