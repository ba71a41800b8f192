# pyright: reportUnknownMemberType=false
"""Large content in the broker: events that don't fit into a message, bundles and diffs of tasks."""

from contextlib import suppress

from nats.errors import Error
from nats.js.errors import APIError, ObjectNotFoundError

from tiller_client.errors import TillerError
from tiller_client.fleet.broker import Broker
from tiller_client.fleet.names import OBJECTS
from tiller_client.fleet.table import Unavailable


async def put_object(broker: Broker, name: str, data: bytes) -> None:
    """Store content under a name, encrypted; raises `Unavailable`."""
    try:
        store = await broker.js.object_store(OBJECTS)
        await store.put(name, broker.sealing.seal(name, data))
    except (TimeoutError, Error, APIError) as error:
        raise Unavailable(str(broker.explained(error))) from None


async def get_object(broker: Broker, name: str) -> bytes:
    """Return what was stored; raises `TillerError` if there is none, or `Unavailable`."""
    try:
        store = await broker.js.object_store(OBJECTS)
        found = await store.get(name)
    except ObjectNotFoundError:
        raise TillerError(f"the broker does not have {name} any more") from None
    except (TimeoutError, Error, APIError) as error:
        raise Unavailable(str(broker.explained(error))) from None
    return broker.sealing.open(name, found.data or b"")


async def drop_object(broker: Broker, name: str) -> None:
    """Delete what was stored, if it is there."""
    with suppress(Error, APIError, TimeoutError):
        store = await broker.js.object_store(OBJECTS)
        await store.delete(name)
