"""A turn's context: its settings, prompt, tools and permissions, frozen when it begins.

`freeze.py` makes the context of a turn. Other modules provide the model, the system prompt, the
hosted tools and the permissions. `mode_reminder.py` tells the model when it gains or loses
permission to write. `turn_warnings.py` makes the warnings with which a turn begins.
"""
