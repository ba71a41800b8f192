"""What the log keeps of events in tables of its own, to find it without reading them. Pure.

The outbox makes these rows while it writes events; a log of an older version makes them from what
it has. Both get the same.
"""

from collections.abc import Iterable, Iterator

from tiller_daemon.store.base import RequestRow
from tiller_protocol.codec import decode_event
from tiller_protocol.errors import BadMessage
from tiller_protocol.events import Event, RequestOpened, RequestResolved

REQUEST_MARK = b"request_"
"""Every encoded event of which `request_rows` says something holds this, and few others do."""


def request_rows(events: Iterable[Event]) -> Iterator[RequestRow]:
    """What `events` say of requests, oldest first: a later row stands for an earlier one."""
    for event in events:
        match event.body:
            case RequestOpened(request=request):
                yield RequestRow(request.id, event.session_id)
            case RequestResolved() as body:
                yield RequestRow(body.request_id, event.session_id, body.resolution, body.by)
            case _:
                pass


def request_rows_in(bodies: Iterable[bytes]) -> Iterator[RequestRow]:
    """`request_rows` of encoded events; one that can't be read says nothing."""
    for body in bodies:
        try:
            event = decode_event(body)
        except BadMessage:
            continue
        yield from request_rows((event,))
