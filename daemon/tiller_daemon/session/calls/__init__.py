"""The tool calls of a turn: their permission, level and execution.

`toolbox.py` finds a call's tool and validates the arguments. `turn_tools.py` holds the settings and
services that a turn's calls share. `tool_call.py` takes one call from permission to result.
`turn_diagnostics.py` shows a turn's sandbox to language servers. `write_limits.py` limits where a
turn may write. `permission.py` asks the policy, and then the user. `reasons.py` states why a call
may run. `turn_sandboxes.py` prepares a command's level. `environments.py` gives a running tool
its resources, such as files and processes. `command_paths.py` finds the additional permissions that
a command line needs. `escalation.py` offers to run a command in a looser sandbox.

`session/calls/toolbox.py` finds the tool, validates the arguments and returns a `PreparedToolCall`
(`session/calls/tool_call.py`). That object knows the call's requirements, and has three methods:

- `permit` asks the policy, and then the hooks. If a hook changes the arguments, `permit` asks the
  policy again. Finally, if the policy says `ask`, `permit` asks the user. If files have changed
  before the user answers, and the call therefore needs other permissions, `permit` refuses the
  call.
- `run` makes the level and runs the tool.
- `run_again` repeats a command that seemed only to read, but was stopped when it tried to write.

While a response streams, a read-only call starts as soon as its arguments are complete, unless:

- the user must be asked about the call;
- a hook observes the tool;
- the call repeats earlier calls;
- steering is waiting;
- an earlier call of the response may write;
- the call is not `repeatable`, for example because it asks the user a question.

Frontends see at once that such an *early call* is `running`. Its result is held back until the
response is complete. If the stream fails, early calls are stopped before the model request is sent
again, and their items are completed as `discarded`. The model never gets discarded items. If the
stream fails and the model request is not sent again, calls that have ended keep their results.
"""
