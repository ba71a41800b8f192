"""Hooks: commands of the user's configuration or a project's, run at certain moments of a turn.

`runner` runs the hooks of a moment, `process` a single one. `session.hooks` selects them and makes
their input.
"""
