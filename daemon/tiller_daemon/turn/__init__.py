"""The turn: one small function over a history, and the pure functions that it uses."""
