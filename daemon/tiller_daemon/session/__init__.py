"""Sessions: the actor, its state, and what joins turns to the log and to frontends."""
