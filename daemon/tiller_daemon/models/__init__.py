"""Model clients: each turns a `ModelRequest` into a stream of `ModelEvent`s.

`base.py` defines the interface of a model. `history_builder.py` walks through a history for an
adapter. `provider.py` represents one provider, `keys.py` finds its key, and `redacted.py` removes
keys from responses. `recording.py` records responses, and `scripted.py` plays responses from a
file.
"""
