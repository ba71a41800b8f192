"""Sandboxes: what a command may do, and the mechanisms that enforce it."""
