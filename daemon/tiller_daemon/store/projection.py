"""Makes the rows of requests from events, so that requests can be found without reading them. Pure.

The outbox makes these rows while it writes events; the migration of an older log makes the same
rows from stored events.
"""

from collections.abc import Iterable, Iterator

from tiller_daemon.store.base import RequestRow
from tiller_protocol.codec import decode_event
from tiller_protocol.errors import BadMessage
from tiller_protocol.events import Event, RequestOpened, RequestResolved

REQUEST_MARK = b"request_"
"""Every encoded event that yields a row contains these bytes; few others do."""


def request_rows(events: Iterable[Event]) -> Iterator[RequestRow]:
    """The rows of requests in `events`, oldest first; a later row replaces an earlier one."""
    for event in events:
        match event.body:
            case RequestOpened(request=request):
                yield RequestRow(request.id, event.session_id)
            case RequestResolved() as body:
                yield RequestRow(body.request_id, event.session_id, body.resolution, body.by)
            case _:
                pass


def request_rows_in(bodies: Iterable[bytes]) -> Iterator[RequestRow]:
    """`request_rows` of encoded events; undecodable ones are skipped."""
    for body in bodies:
        try:
            event = decode_event(body)
        except BadMessage:
            continue
        yield from request_rows((event,))
