"""Sub-agents: the available agents, and the runs of sub-agents.

`agents.py` finds agents by name. `delegation.py` starts a sub-agent for a `task` call,
`sub_agent_run.py` links the sub-agent to the call, and `report.py` makes the call's result.
`owner.py` is the owner's end of this link.
`background_tasks.py` manages sub-agents that outlive the turn.

A `task` call starts a sub-agent, which is a turn of a separate session. The prompt, and a
background sub-agent's end, reach a session's loop as messages of their own beside ops
(`SessionMessage` in `session/state.py`). That session has an actor, a log and recovery like any
other. While the call runs, a `SubAgentRun` links the sub-agent to its *owner*, the session that
made the call:

- The owner passes its rules, its setting `approve` and its remaining budget to the sub-agent. If
  the owner is interrupted, so is the sub-agent.
- The sub-agent passes its open requests, granted rules and the spending of each step to the owner.

A sub-agent's request has the same id in both sessions' logs, and the answer goes to the sub-agent's
session. The `task` call ends only after the end of the sub-agent's turn is in the sub-agent's log,
so the owner's turn can't end first.

`task` calls run concurrently (`turn/dispatch.py`) if they declare scopes that do not overlap
(`tools/write_scope.py`). The scope is part of the sub-agent's context (`Permissions.scope`), and
nested sub-agents inherit it. `write_limits.py` refuses calls that write outside the scope, whatever
the rules say. For commands, the sandbox makes only the scope writable (`Sandboxes.make`).
Snapshots contain the whole workspace, including the changes of concurrent sub-agents. Therefore a
patch names the paths that it covers (`within`) and those that it leaves out (`without`).

A background sub-agent belongs to a `BackgroundTask` of its owner, not to a turn. It claims its
scope until it ends. The owner's loop handles the sub-agent's end like input
(`background/delivering.py`). One commit marks the sub-agent as ended (`background_changed`) and
delivers its report. Therefore, if the log still shows a sub-agent as running after a crash, its
report was never delivered, and the sub-agent is marked as `lost`.
"""
