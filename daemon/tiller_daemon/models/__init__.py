"""Model clients: each turns a `ModelRequest` into a stream of `ModelEvent`s."""
