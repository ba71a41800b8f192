"""All properties of programs, for whoever judges other programs than the tests do."""

from sim import test_guarantees, test_guarantees_of_history, test_guarantees_of_input

MODULES = (test_guarantees, test_guarantees_of_history, test_guarantees_of_input)

CHECKS = tuple(
    vars(value)["check"]
    for module in MODULES
    for value in vars(module).values()
    if hasattr(value, "check")
)
"""Each takes what was seen of a program and raises `AssertionError`."""
