"""`tiller chat`: a session in a terminal, where the user reads, writes and answers.

Finished lines go to the terminal's own scrollback; only lines that still change are redrawn.

`opening.py` draws the first frame, before the slow import of prompt-toolkit. `state.py` is what all
parts of the chat share: `screen.py` draws it, and the actions change it. `app.py` wires the parts
and runs the chat. `conversation.py` (pure) turns events into lines. `frame.py` (pure) makes the
rows at the bottom: the editor, the status line (`status.py`), menus (`menu.py`) and the open
request (`asking.py`). `editor.py` holds the text that the user writes, `attaching.py` finds the
images that it names, and `clipboard.py` takes one from the clipboard. `keys.py` and `commands.py`
list the available actions. `actions.py`, `command_actions.py` and `choosing.py` carry them out;
`submitting.py` submits their ops. `sub_agents.py` follows sub-agents. `plain.py` is a chat that
only prints lines.
"""
