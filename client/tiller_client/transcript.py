"""Renders a session as it is now, for reading; pure."""

from tiller_client.render_item import background_line, input_line, item_block, waiting_line
from tiller_client.render_request import request_block
from tiller_client.text import Paint, count, dollars, one_line
from tiller_protocol.items import Reasoning, Usage, UserMessage
from tiller_protocol.snapshot import Snapshot


def transcript(snapshot: Snapshot, paint: Paint, width: int, *, whole: bool = False) -> str:
    """A whole session, with open requests and queued input at its end.

    `whole`: with all that calls returned.
    """
    model = f" · {snapshot.settings.model}" if snapshot.settings.model else ""
    lines = [
        paint.bold(one_line(snapshot.title) or "(no title)"),
        paint.dim(f"{snapshot.session_id} · {one_line(snapshot.workspace)}{one_line(model)}"),
    ]
    for item in snapshot.items:
        if isinstance(item, Reasoning) and not item.text:
            continue  # it has only opaque data for the provider
        before = "\n" if isinstance(item, UserMessage) else ""
        lines.append(before + item_block(item, paint, width, whole=whole))
    lines.extend(request_block(request, paint, width) for request in snapshot.requests)
    running = [one for one in snapshot.background if one.state == "running"]
    lines.extend(paint.dim(background_line(one)) for one in running)
    lines.extend(paint.dim(f"queued: {input_line(queued)}") for queued in snapshot.queue)
    if snapshot.queue and snapshot.turn is None:
        lines.append(paint.asking(f"! {waiting_line(len(snapshot.queue), snapshot.session_id)}"))
    cost = f" · {_cost(snapshot)}" if snapshot.cost is not None or snapshot.unpriced else ""
    tokens = (
        f" · {count(snapshot.usage.input_tokens)} in, {count(snapshot.usage.output_tokens)} out"
        if snapshot.usage != Usage()
        else ""  # the provider did not count
    )
    turns = f"{snapshot.turns} turn{'' if snapshot.turns == 1 else 's'}"
    lines.append(paint.dim(f"\n{snapshot.status} · {turns}{tokens}{cost}"))
    return "\n".join(lines)


def _cost(snapshot: Snapshot) -> str:
    """The cost of a session, and how much of it is unknown."""
    if snapshot.cost is None:
        return "cost unknown"
    if not snapshot.unpriced:
        return dollars(snapshot.cost)
    requests = "1 request" if snapshot.unpriced == 1 else f"{snapshot.unpriced} requests"
    return f"{dollars(snapshot.cost)} and {requests} of unknown price"
