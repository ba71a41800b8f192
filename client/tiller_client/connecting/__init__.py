"""Finding, starting and reaching the daemon."""
