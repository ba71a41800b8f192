"""The terminal that a chat runs in: keys, frames, notifications.

`keyboard.py` reads keys, which `sequences.py` (pure) splits. `painter.py` draws frames. `pace.py`
decides when to draw the next frame. `typed_ahead.py` keeps keys that are typed before the chat
starts. `look.py` holds the terminal's width and colours, `abilities.py` finds out what it can do,
and `backdrop.py` asks for its background. `outside.py` runs other programs.
"""
