"""The table `[fleet]` of the configuration: how this machine takes part in a fleet.

The gateway and the command line use it. The daemon only checks it.
"""

from typing import Annotated

from msgspec import Meta, Struct

from tiller_protocol.places import FLEET_HOST

SLOTS_MAX = 1000
"""More sessions than any machine runs at once."""

Name = Annotated[str, Meta(pattern=FLEET_HOST)]
"""The name of a host or a label."""


class Fleet(Struct, frozen=True, forbid_unknown_fields=True):
    """How this machine takes part in a fleet."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    """Addresses of the NATS servers, such as `tls://broker.example:4222`."""
    creds: str = ""
    """Path of the file with the credentials for NATS; empty if the servers want none."""
    ca: str = ""
    """Path of the certificates to trust instead of the system's."""
    key: str = ""
    """Path of the file with the team's key, which encrypts all content; empty: no encryption."""
    name: Name | None = None
    """This host's name in the fleet; default: the machine's host name."""
    labels: tuple[Name, ...] = ()
    """What this host offers, such as `gpu`. A task runs only where all its labels are offered."""
    workspace: str = ""
    """The directory in which an agent works that other programs find by the Synadia Agent Protocol;
    empty: no such agent. Not possible with a `key`, as that protocol does not encrypt."""
    slots: Annotated[int, Meta(ge=0, le=SLOTS_MAX)] = 1
    """How many tasks of the fleet run here at once; 0: none, but the host can be reached."""
