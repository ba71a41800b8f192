"""Sub-agents: the available agents, and the runs of sub-agents."""
