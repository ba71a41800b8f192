"""The sandbox: what each enclosure allows, and the mechanisms that enforce it."""
