"""Faults of what is kept: the outbox, endings, recovery, history, requests."""

from fault import SESSION, TURN, Fault

OUTBOX = (
    Fault(
        "G1 nothing is published before it is in the log",
        SESSION + "outbox.py",
        "        requests = tuple(request_rows(events))",
        "        requests = tuple(request_rows(events))\n"
        "        for event, body in zip(events, bodies, strict=True):\n"
        "            self._publish(event.session_id, body)",
    ),
    Fault(
        "G1 committed means all that was put before",
        SESSION + "outbox.py",
        "        self._puts_committed = puts\n",
        "        self._puts_committed = self._puts\n",
    ),
    Fault(
        "G2 pieces are joined only with what they follow",
        SESSION + "outbox.py",
        "                self._joinable.clear()\n                self._pending",
        "                self._pending",
        equivalent="a piece is then joined with an earlier one of its own item, across events of "
        "other items; the order within an item, and what all events add up to, stay the same",
    ),
    Fault(
        "G2 an event that the log refused is not published",
        SESSION + "outbox.py",
        "            self.broken = error\n            self._wake_waiters()\n            raise",
        "            self.broken = error",
    ),
)

ENDING = (
    Fault(
        "G7 open requests are resolved when a turn ends",
        TURN + "closing.py",
        '[RequestResolved(r.id, "cancelled") for r in snapshot.requests]',
        "[]",
    ),
    Fault(
        "G7 open items are completed when a turn ends",
        TURN + "closing.py",
        "        if item.id in snapshot.open_items:",
        "        if item.id in snapshot.open_items[1:]:",
    ),
    Fault(
        "G7 an open step is ended when a turn ends",
        TURN + "closing.py",
        "    if turn.step_open:\n        bodies",
        "    if turn.step_open and turn.step > 1:\n        bodies",
    ),
    Fault(
        "B24 the model is told of an interrupt",
        TURN + "closing.py",
        '    if ending.outcome == "interrupted":\n        text',
        '    if ending.outcome == "failed":\n        text',
    ),
    Fault(
        "G11 after a kill what became of a running call is not known",
        SESSION + "recovery.py",
        "new_id, lost=True)",
        "new_id)",
    ),
    Fault(
        "G8 a turn is ended when its tasks are gone",
        SESSION + "active_turn.py",
        '            self._interrupted = Ending("interrupted", reason)\n',
        '            self._interrupted = Ending("interrupted", reason)\n'
        "            self._close(self._interrupted)\n",
    ),
    Fault(
        "G5 a turn has ended when that is in the log",
        SESSION + "active_turn.py",
        "        ended = self._close(ending)\n        await self._session.outbox.committed()",
        "        ended = self._close(ending)",
    ),
)

RECOVERY = (
    Fault(
        "G11 steering of a killed turn goes back to the queue",
        SESSION + "recovery.py",
        "    if queue.hand_back():",
        "    if queue.hand_back() and not queue.queue:",
    ),
    Fault(
        "G11 the session works on with the queue that recovery made",
        SESSION + "actor.py",
        "            self._state.queue.restore(self.outbox.fold_pending().queue)",
        "            pass",
    ),
    Fault(
        "G11 an unfinished turn is closed before the sockets open",
        SESSION + "outbox.py",
        "        unfinished=snapshot.turn is not None,",
        "        unfinished=False,",
    ),
    Fault(
        "B56 a fork shares what is in the log and no more",
        SESSION + "supervisor.py",
        "        head = parent.outbox.fold_pending().seq\n        await parent.outbox.committed()",
        "        await parent.outbox.committed()\n        head = parent.outbox.fold_pending().seq",
    ),
    Fault(
        "G4 a fork holds nothing open",
        "protocol/tiller_protocol/snapshot.py",
        "_closed(item) if item.id in parent.open_items else item",
        "item",
    ),
)

RESUMING = (
    Fault(
        "B50 a turn is not resumed for ever",
        SESSION + "resuming.py",
        "    if turn.resumed >= RESUMES_MAX:",
        "    if turn.resumed > RESUMES_MAX:",
    ),
    Fault(
        "B50 what a resumed turn has taken counts",
        SESSION + "freeze.py",
        "steps=before.steps - turn.step, turn_steps=turn.step",
        "turn_steps=turn.step",
    ),
    Fault(
        "B50 the limits of a resumed turn hold",
        TURN + "loop.py",
        "    if step and (reached := purse.turn_limit(step)):",
        "    if step and (reached := purse.session_limit()):",
    ),
    Fault(
        "B50 the turn of a sub-agent is closed",
        SESSION + "resuming.py",
        "    if turn is None or snapshot.owner_id:",
        "    if turn is None:",
    ),
)

HISTORY = (
    Fault(
        "G4 every call has a result",
        TURN + "history.py",
        '    if call.state in ("completed", "error"):',
        '    if call.state in ("completed", "error", "running", "pending"):',
    ),
    Fault(
        "G4 a discarded call is not sent",
        TURN + "history.py",
        "                if not item.discarded:",
        "                if item.id:",
    ),
    Fault(
        "B47 a discarded text is not sent",
        TURN + "history.py",
        '                if item.state != "discarded" and (',
        "                if (",
    ),
    Fault(
        "B41 the newest input survives a compaction word for word",
        TURN + "history.py",
        "                self.items = [*(self._said[message] for message in item.kept), item]",
        "                self.items = [item]",
    ),
    Fault(
        "B43 a summary that is too large does not count",
        TURN + "compaction.py",
        "        if not summary.strip() or after > SHRINK_SHARE_MAX * before:",
        "        if not summary.strip():",
    ),
    Fault(
        "B43 compactions that fail end the turn",
        TURN + "compaction.py",
        "            self._failures += 1",
        "            self._failures += 0",
    ),
    Fault(
        "B18 after a compaction the model's continuation comes first",
        TURN + "loop.py",
        "            if not await window.make_if_full():\n                await",
        "            if not await window.make_if_full() or True:\n                await",
    ),
    Fault(
        "B44 a reloaded session sends the same bytes",
        TURN + "compaction.py",
        "    await ports.emit(HistoryCompacted(before, after, pruned=pruned))",
        "    await ports.emit(HistoryCompacted(before, after))",
    ),
)

REQUESTS = (
    Fault(
        "B37 a no rejects what else is open",
        SESSION + "requests.py",
        '            self._resolve_others(Reply("reject", "", reply.by))',
        "            pass",
    ),
    Fault(
        "B36 always resolves what it allows",
        SESSION + "requests.py",
        "            if waiter.is_allowed():",
        "            if waiter.is_allowed() and not waiter.turn_id:",
    ),
    Fault(
        "B40 the first answer wins",
        SESSION + "requests.py",
        "        if waiter.answered.is_set():\n            raise",
        "        if not waiter.turn_id:\n            raise",
    ),
)

FAULTS = OUTBOX + ENDING + RECOVERY + RESUMING + HISTORY + REQUESTS
