"""The command line: its verbs and options, and the sessions, files and texts that they name.

`arguments.py` finds the verb. `verb_arguments.py` and the modules that it imports define all verbs
and options. `parser.py` checks values (`values.py`) and reports errors, and `completion.py`
completes command lines in a shell. `choose.py` finds the session, request or turn that an argument
refers to. `choices.py` reads the settings for a turn or session. `prompt.py` and `piped.py` read
the text to send.
"""
