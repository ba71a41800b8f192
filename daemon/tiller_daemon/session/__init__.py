"""Sessions: the actor, its state, and the connection of turns with the log and frontends."""
