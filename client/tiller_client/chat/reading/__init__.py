"""Makes lines for people of what a session contains: Markdown, items, diffs, images; pure.

Nothing here knows a terminal or keeps state of its own; whoever calls writes the lines.
"""
