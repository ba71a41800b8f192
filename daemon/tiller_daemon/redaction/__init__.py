"""Taking secrets out of text that others wrote."""
