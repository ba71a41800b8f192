"""Renders events and items as text for terminals and files.

Pure: nothing here uses a terminal or keeps more state than a stream needs; the callers write the
lines. `events.py` renders events as they happen, `lines.py` those that take a line or two,
`activity.py` what goes on now, and `transcript.py` a whole session. `requests.py` renders requests,
of which nothing may be cut or hidden.

`items.py` renders items, `calls.py` renders tool calls, `diff.py` renders diffs, and `images.py`
renders images. `labels.py` names things in one line. `facts.py` finds information that an item does
not contain, such as its duration. `text.py` measures text and makes it safe, `layout.py` breaks
lines, and `style.py` has the themes.

`markdown.py` renders Markdown while it streams. Lines in a terminal's scrollback can't be changed,
so `MarkdownStream` returns a line only when no later text can change it. It returns a line of code
at once, a list item when the item is finished, and other lines when their block has ended. An
unfinished block is parsed again each time it has grown by an eighth, which keeps the total cost
linear. Definitions of links (`[a]: …`) are shown as text, because a definition may arrive after its
link has been shown.

Only this package imports markdown-it-py, which parses CommonMark, and pygments, which colours code,
both with the first text that needs them. Importing markdown-it-py takes 40 ms and 1 MB. Importing
pygments takes 11 ms and 5 MB. Two alternatives are worse:

- rich takes 75 ms to import, and can't lay out a text before it is complete.
- mistune is faster to import, but does not parse CommonMark.
"""
