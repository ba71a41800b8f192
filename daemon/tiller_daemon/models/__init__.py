"""Adapters to models: each turns a `ModelRequest` into a stream of `ModelEvent`s."""
