"""Snapshots of a workspace before and after a step, in the daemon's own git repository."""
