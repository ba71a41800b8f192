"""Hooks: commands of the configuration, the user's or a project's, run at moments of a turn.

`runner` runs those of a moment, `process` one. Which these are, and what they are told, is in
`session.hooks`.
"""
