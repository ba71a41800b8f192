"""Every state of `tiller chat` that a person can see, to be tested and drawn."""

from support.screens import answering, choosing, reading, working

STATES = (*reading.STATES, *answering.STATES, *working.STATES, *choosing.STATES)
