"""Renders events and items as text for terminals and files.

`events.py` and `lines.py` render events, `items.py` renders items, and `requests.py` renders
requests. `transcript.py` renders a whole session, and `activity.py` describes its current activity.
`text.py` measures text, colours it and makes it safe.
"""
