"""Hooks: commands from the user's or a project's configuration, run at certain moments of a turn.

`runner` runs the hooks for one moment, and `process` runs a single hook. `session.hooks` selects
the hooks and makes their input.
"""
