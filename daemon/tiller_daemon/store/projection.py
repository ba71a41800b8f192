"""Makes the rows of requests from events, so that requests can be found without reading events.

The outbox makes these rows while it writes events; the migration of an older log makes the same
rows from stored events. The functions are pure.
"""

from collections.abc import Iterable, Iterator

from tiller_daemon.store.base import RequestRow
from tiller_protocol.codec import decode_event
from tiller_protocol.errors import BadMessage
from tiller_protocol.events import Event, RequestOpened, RequestResolved

REQUEST_MARK = b"request_"
"""Bytes that every encoded event with a row contains, and few other events."""


def request_rows(events: Iterable[Event]) -> Iterator[RequestRow]:
    """Yield the rows of requests in `events`, oldest first; a later row replaces an earlier one."""
    for event in events:
        match event.body:
            case RequestOpened(request=request):
                yield RequestRow(request.id, event.session_id)
            case RequestResolved() as body:
                yield RequestRow(body.request_id, event.session_id, body.resolution, body.by)
            case _:
                pass


def request_rows_in(bodies: Iterable[bytes]) -> Iterator[RequestRow]:
    """Yield the rows of requests in encoded events; undecodable events are skipped."""
    for body in bodies:
        try:
            event = decode_event(body)
        except BadMessage:
            continue
        yield from request_rows((event,))
