"""What frontends send to a session, checked and completed."""
