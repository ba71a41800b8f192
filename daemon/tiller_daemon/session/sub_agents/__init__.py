"""Sub-agents: who they are, and their runs."""
