"""A seed is a program, and a program is one run: what failed once can be looked at again."""

import pytest
from msgspec import structs

from sim.batches import shrink
from sim.player import Seen, play
from sim.program import Action, Program, program_of, show
from tiller_daemon.models import scripted
from tiller_protocol import settings

SEEDS = range(12)
NAMES = {**vars(scripted), **vars(settings), "Program": Program, "Action": Action}


@pytest.mark.promise("T18")
def test_a_seed_replays_to_the_last_event_and_the_last_answer() -> None:
    for seed in SEEDS:
        assert _all_of(play(program_of(seed))) == _all_of(play(program_of(seed)))


def test_the_seed_of_the_scheduler_decides_the_order_of_tasks() -> None:
    runs = [_all_of(play(structs.replace(program_of(1), seed=seed))) for seed in SEEDS]
    orders = {tuple(type(event.body) for event in log) for run in runs for log in run[0]}
    assert len(orders) > len(SEEDS) // 2


def test_what_is_printed_of_a_program_makes_it_again() -> None:
    for seed in SEEDS:
        program = program_of(seed)
        assert eval(show(program), NAMES) == program


def test_a_failing_program_is_made_as_small_as_it_can_be() -> None:
    program = program_of(3)
    wanted = Action(0.0, "fork")
    program = structs.replace(program, actions=(*program.actions, wanted, *program.actions))
    small = shrink(program, lambda candidate: wanted in candidate.actions, 400)
    assert small.actions == (wanted,)
    assert len(small.script.steps) == 1


def _all_of(seen: Seen):
    logs = [session.log for session in seen.sessions.values()]
    return logs, seen.answers, [request.items for request in seen.requests], seen.spans
