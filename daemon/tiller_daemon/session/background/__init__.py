"""Background commands and sub-agents, which outlive the turn that started them."""
