"""What a call may do: `rules` decides, `shell_commands` takes a command line apart. All of it pure.

The boundary is what the system enforces; rules decide what is worth a question.
"""
