"""The verbs of `tiller`, one module per family; `run(arguments)` returns the exit status."""
