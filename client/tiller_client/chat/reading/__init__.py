"""Renders the contents of a session as lines: Markdown, items, diffs, images; pure.

Nothing here uses a terminal or keeps state; the callers write the lines.

`markdown.py` renders Markdown while it streams. `items.py` renders items, `calls.py` renders tool
calls, `diff.py` renders diffs, and `images.py` renders images. `facts.py` finds information that an
item does not contain, such as its duration. `layout.py` breaks lines. `style.py` has the themes,
and makes text safe for the terminal.

`chat/reading` lays out the lines that `tiller chat` shows. Lines in the terminal's scrollback can't
be changed, so `MarkdownStream` returns a line only when no later text can change it. It returns a
line of code at once, a list item when the item is finished, and other lines when their block has
ended. An unfinished block is parsed again each time it has grown by an eighth, which keeps the
total cost linear. Definitions of links (`[a]: …`) are shown as text, because a definition may
arrive after its link has been shown. `Theme.line` removes unsafe characters that earlier modules
have missed.

Most of what the chat shows for an item comes from the item. `Facts` adds information from other
items, events and the clock, such as how long the model thought or what a sub-agent is doing. Images
are decoded and encoded again, so the terminal receives only the pixels. A terminal that can't draw
images shows a label instead.

Only `chat/reading` imports markdown-it-py, which parses CommonMark, and pygments, which colours
code. Importing markdown-it-py takes 40 ms and 1 MB. Importing pygments takes 11 ms and 5 MB. Two
alternatives are worse:

- rich takes 75 ms to import, and can't lay out a text before it is complete.
- mistune is faster to import, but does not parse CommonMark.
"""
