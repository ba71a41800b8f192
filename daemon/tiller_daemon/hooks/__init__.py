"""Hooks: commands of the user's configuration that are run at moments of a turn.

`runner` runs those of a moment, `process` one. Which these are, and what they are told, is in
`session.hooks`.
"""
