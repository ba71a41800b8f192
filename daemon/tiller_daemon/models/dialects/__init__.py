"""The wire formats of model APIs, one package each, and what they share."""
