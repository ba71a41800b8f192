"""The verbs of `tiller`, one module per family; each has `run(arguments)`, the exit status."""
