"""Makes the rows of requests, so that requests can be found without reading events. Pure."""

from collections.abc import Iterable, Iterator

from tiller_daemon.store.base import RequestRow
from tiller_protocol.events import Event, RequestOpened, RequestResolved


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
