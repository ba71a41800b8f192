"""What a call may do: `rules` decides, `shell_commands` takes a command line apart. All of it pure.

A text goes through `shell_syntax` (with `shell_words`, `shell_values`, `shell_listing`), then
through `shell_wrappers`. What only reads is known to `shell_reading`, `shell_git` and
`shell_filters`, what builds and tests to `shell_working` and `shell_tools`, what either looks at to
`shell_places`.

The boundary is what the system enforces; rules decide what is worth a question.
"""
