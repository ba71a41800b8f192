"""What the table `[hosts]` of the configuration may hold, for daemon and frontends. Pure."""

HOST_LABEL = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}\Z"
HOST_LABEL_EXPECTED = (
    "expected a name of 1 to 32 letters, digits, `.`, `-` and `_` that begins with a letter or a "
    "digit, for ids such as `box:8K2Q`"
)
"""The name of a host. Without a colon, because a colon stands between it and an id."""

DESTINATION = r"^(?!-)[^\s\x00-\x1f\x7f]+\Z"
DESTINATION_EXPECTED = (
    'expected a destination for ssh, such as "me@box", that is not empty, has no spaces and does '
    "not begin with `-`"
)
"""What ssh gets as its destination. One that begins with `-` would be an option for ssh."""
