"""Snapshots of a workspace before and after a step, in a git directory of the daemon's own."""
