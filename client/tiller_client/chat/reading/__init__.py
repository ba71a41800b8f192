"""Renders the contents of a session as lines: Markdown, items, diffs, images; pure.

Nothing here uses a terminal or keeps state; the callers write the lines.
"""
