"""Sub-agents: the agents that there are, and the runs of sub-agents."""
