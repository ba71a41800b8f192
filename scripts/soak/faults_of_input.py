"""Faults of what goes in: the loop, its calls, the queue, submissions."""

from fault import SESSION, TURN, Fault

LOOP = (
    Fault(
        "G10 input is in the queue or in history: one commit",
        TURN + "loop.py",
        "ItemCompleted(message)]\n    await ports.emit(*bodies)",
        "ItemCompleted(message)]\n"
        "    await ports.emit(bodies[0])\n"
        "    await ports.committed()\n"
        "    await ports.emit(*bodies[1:])",
    ),
    Fault(
        "G10 steering comes before the next request",
        TURN + "loop.py",
        "                await _take_steering(history, ports)",
        "                pass",
    ),
    Fault(
        "G10 the turn decides with the mailbox closed or not at all",
        TURN + "loop.py",
        "        ports.mailbox.close()",
        "        await ports.committed()\n        ports.mailbox.close()",
    ),
    Fault(
        "G10 steering that comes as the turn would rest is steering",
        TURN + "loop.py",
        "        if response.calls or ports.mailbox.has_steering:",
        "        if response.calls:",
    ),
    Fault(
        "B20 follow-ups one at a time",
        TURN + "loop.py",
        "ports.mailbox.take_follow_ups(context.follow_ups)",
        'ports.mailbox.take_follow_ups("all")',
    ),
    Fault(
        "B8 the last step gets no tools",
        TURN + "loop.py",
        "        tools=() if limit else context.prompt.tools,",
        "        tools=context.prompt.tools,",
    ),
    Fault(
        "G6 the limit of the turn's own context counts",
        TURN + "loop.py",
        "        if step >= self._budgets.max_steps:",
        "        if step > self._budgets.max_steps:",
    ),
    Fault(
        "G4 the request after an overflow is built anew",
        TURN + "loop.py",
        "    again = replace(frozen.request, items=history.for_request(), attempt=attempt)",
        "    again = replace(frozen.request, attempt=attempt)",
    ),
)

CALLS = (
    Fault(
        "G9 a call that writes runs alone",
        TURN + "dispatch.py",
        '            alone = not isinstance(prepared, Refusal) and prepared.effect == "write"',
        "            alone = False",
    ),
    Fault(
        "G9 a call that writes waits for those that began early",
        TURN + "dispatch.py",
        "            if alone and (group or busy):",
        "            if alone and group:",
    ),
    Fault(
        "G9 nothing begins early behind a call that writes",
        TURN + "dispatch.py",
        '        self._closed = prepared.effect == "write"',
        "        self._closed = False",
    ),
    Fault(
        "B16 calls that have not begun are skipped when the user steers",
        TURN + "dispatch.py",
        "            if rejected or self._ports.mailbox.has_steering:",
        "            if rejected:",
    ),
    Fault(
        "G4 a result is in history",
        TURN + "dispatch.py",
        "            self._history.replace(call)\n        await self._say(calls)",
        "            pass\n        await self._say(calls)",
    ),
    Fault(
        "G11 a call that writes is in the log before it begins",
        TURN + "call.py",
        'effect == "write":\n        await ports.committed()',
        'effect == "write":\n        pass',
    ),
    Fault(
        "B33 a stream that failed leaves no call behind",
        TURN + "dispatch.py",
        "            early.scope.cancel()",
        "            pass",
    ),
    Fault(
        "B7 a response that was cut off runs nothing",
        TURN + "step.py",
        '    elif response.finish_reason == "length":',
        '    elif response.finish_reason == "content_filter":',
    ),
    Fault(
        "G7 what a failed attempt began is completed",
        TURN + "assembly.py",
        '        return (ItemCompleted(structs.replace(item, state="discarded")),)',
        "        return ()",
    ),
)

QUEUE = (
    Fault(
        "G10 steering is delivered once",
        SESSION + "input_queue.py",
        '        self._queue = [queued for queued in self._queue if queued.delivery != "steer"]',
        "        self._queue = list(self._queue)",
    ),
    Fault(
        "G10 follow-ups come in order",
        SESSION + "input_queue.py",
        "        taken, self._queue = tuple(self._queue[:count]), self._queue[count:]",
        "        taken, self._queue = tuple(self._queue[-count:]), self._queue[:-count]",
    ),
    Fault(
        "G10 steering that was not taken is handed back",
        SESSION + "input_queue.py",
        '[structs.replace(queued, delivery="queue") for queued in self._queue]',
        "list(self._queue)",
    ),
    Fault(
        "B21 what is promoted is next",
        SESSION + "input_queue.py",
        "        self._queue.insert(0, structs.replace(queued, delivery=delivery))",
        "        self._queue.append(structs.replace(queued, delivery=delivery))",
    ),
    Fault(
        "G12 the queue is bounded",
        SESSION + "input_queue.py",
        "        return len(self._queue) >= QUEUED_INPUTS_MAX",
        "        return False",
    ),
    Fault(
        "B14 a wrong expected_turn_id changes nothing",
        SESSION + "handlers.py",
        "    if op.expected_turn_id not in (None, turn.turn_id):",
        "    if op.expected_turn_id is op:",
    ),
    Fault(
        "B13 steering for no turn is handed back",
        SESSION + "handlers.py",
        '    if op.delivery == "steer" or op.expected_turn_id is not None:',
        "    if op.expected_turn_id is not None:",
    ),
    Fault(
        "G10 at rest what was queued first comes first",
        SESSION + "handlers.py",
        '        first = state.queue.take_follow_ups("one_at_a_time")[0]',
        "        state.queue.remove(len(state.queue.queue) - 1)",
    ),
    Fault(
        "B27 an interrupt for another turn changes nothing",
        SESSION + "handlers.py",
        "    if op.turn_id not in (None, state.turn.turn_id):",
        "    if op.turn_id is op:",
    ),
    Fault(
        "B21 an interrupt keeps the queue and says so",
        SESSION + "active_turn.py",
        "        if self._session.queue.hand_back() or (",
        "        if self._session.queue.hand_back() and (",
    ),
)

SUBMISSIONS = (
    Fault(
        "G3 what is accepted is in the log",
        SESSION + "actor.py",
        "        self.outbox.put(submission=row)\n        await self.outbox.committed()",
        "        self.outbox.put(submission=row)",
    ),
    Fault(
        "G3 the answer is stored with its events",
        SESSION + "outbox.py",
        "Batch(session_row(self.snapshot), rows, submission, requests)",
        "Batch(session_row(self.snapshot), rows, None, requests)",
    ),
    Fault(
        "G3 an answered submission is not done again",
        SESSION + "supervisor.py",
        "            if row := await self._earlier(submission_id):",
        "            if (row := await self._earlier(submission_id)) and not row:",
    ),
    Fault(
        "G3 one submission twice at once is one",
        SESSION + "supervisor.py",
        "        while (earlier := self._in_flight.get(submission_id)) is not None:",
        "        while (earlier := self._in_flight.get(op.__class__.__name__)) is not None:",
    ),
    Fault(
        "G3 after a restart old ids are looked up",
        SESSION + "supervisor.py",
        "        self._highest_id = await self._services.log.highest_submission()",
        '        self._highest_id = ""',
    ),
    Fault(
        "G3 an id is not used for two ops",
        SESSION + "supervisor.py",
        "    if row.digest != digest:",
        "    if row.digest == b'':",
    ),
    Fault(
        "G5 input that comes while a turn ends waits for its end",
        SESSION + "actor.py",
        '        return turn.steerable or op.delivery != "steer"',
        "        return False",
    ),
    Fault(
        "G5 input that waited for the end of a turn is not forgotten",
        SESSION + "actor.py",
        "                self._send.send_nowait(pending)\n            except trio.WouldBlock:\n"
        "                answer",
        "                pass\n            except trio.WouldBlock:\n                answer",
    ),
)

FAULTS = LOOP + CALLS + QUEUE + SUBMISSIONS
