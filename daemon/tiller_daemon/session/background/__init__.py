"""Commands and sub-agents that outlive the turn that started them."""
