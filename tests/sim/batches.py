"""Programs in batches: each is played once and judged by every test, a failing one is made smaller.

`TILLER_PROGRAMS` sets how many are played, `TEST_SEED` where their seeds begin.
"""

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coverage import Coverage
from msgspec import structs

from sim.player import Seen, play
from sim.program import Program, program_of, show
from tiller_daemon.memory import GC_THRESHOLDS

PROGRAMS = int(os.environ.get("TILLER_PROGRAMS", "100"))
FIRST_SEED = int(os.environ.get("TEST_SEED", "0"))
BATCH_PROGRAMS = 100
"""So many at a time are held in memory."""

SHRINK_PLAYS_MAX = int(os.environ.get("TILLER_SHRINK_PLAYS", "400"))
"""How often a failing program is played to make it smaller; about ten seconds."""

Check = Callable[[Seen], None]


@dataclass
class Played:
    """A program and what came of it, or why it did not come to its end."""

    program: Program
    seen: Seen | None
    failure: BaseException | None = None


@dataclass
class Batch:
    """Programs that are held at a time; coverage is `measured` for the first ones only."""

    played: list[Played]
    measured: bool


def play_seed(seed: int) -> Played:
    """Play the program of a seed; what it raises is kept."""
    return play_safely(program_of(seed))


def play_safely(program: Program) -> Played:
    """Play a program; what it raises is kept."""
    try:
        return Played(program, play(program))
    except Exception as error:
        return Played(program, None, error)


def of_every_program(check: Check) -> Callable[[Batch], None]:
    """A test that a property holds for all programs of the batch; `check` is the property."""

    def test(batch: Batch) -> None:
        with fast(measured=batch.measured):
            for played in batch.played:
                if played.seen is not None:
                    judge(check, played)

    test.__name__ = check.__name__
    test.__doc__ = check.__doc__
    test.__module__ = check.__module__
    vars(test)["check"] = check
    return test


def judge(check: Check, played: Played) -> None:
    """Raise `AssertionError` with a program that replays, and is small, when `check` fails."""
    assert played.seen is not None
    try:
        check(played.seen)
    except Exception as error:
        kind = type(error)
        small = shrink(played.program, lambda program: fails_alike(check, program, kind))
        raise AssertionError(report(played.program, small, error)) from error


def must_end(played: Played) -> None:
    """Raise `AssertionError` likewise when a program did not come to its end."""
    failure = played.failure
    if failure is None:
        return

    def fails(program: Program) -> bool:
        return isinstance(play_safely(program).failure, type(failure))

    raise AssertionError(report(played.program, shrink(played.program, fails), failure))


def fails_alike(check: Check, program: Program, kind: type[Exception]) -> bool:
    """Whether a program fails a check by an error of that kind."""
    played = play_safely(program)
    if played.seen is None:
        return False
    try:
        check(played.seen)
    except Exception as another:
        return isinstance(another, kind)
    return False


def report(program: Program, small: Program, error: BaseException) -> str:
    """What is printed of a failure."""
    return (
        f"{type(error).__name__}: {error}\n\n"
        f"The program of seed {program.seed} fails; replay it: play(program_of({program.seed})).\n"
        f"A smaller one that fails: play({show(small)})"
    )


def shrink(
    program: Program, fails: Callable[[Program], bool], plays: int = SHRINK_PLAYS_MAX
) -> Program:
    """A smaller program that still fails: actions and parts of the script are left out, by halves.

    The seed stays, so that the order of tasks is as near as it can be to what it was.
    """
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(program):
            plays -= 1
            if plays < 0:
                return program
            if fails(candidate):
                program, smaller = candidate, True
                break
    return program


def _candidates(program: Program) -> Iterator[Program]:
    script = program.script
    for actions in _without_some(program.actions):
        yield structs.replace(program, actions=actions)
    for steps in _without_some(script.steps[:-1]):
        fewer = structs.replace(script, steps=(*steps, script.steps[-1]))
        yield structs.replace(program, script=fewer)
    for number, step in enumerate(script.steps):
        for simpler in _simpler_steps(step):
            steps = (*script.steps[:number], simpler, *script.steps[number + 1 :])
            yield structs.replace(program, script=structs.replace(script, steps=steps))
    for side in ("title", "compaction"):
        if getattr(script, side) is not None:
            yield structs.replace(program, script=structs.replace(script, **{side: None}))
    if program.commits_s != (0.0,):
        yield structs.replace(program, commits_s=(0.0,))
    for number, action in enumerate(program.actions):
        if action.copies > 1:
            fewer_copies = structs.replace(action, copies=1)
            actions = (*program.actions[:number], fewer_copies, *program.actions[number + 1 :])
            yield structs.replace(program, actions=actions)


def _simpler_steps(step):
    for parts in _without_some(step.parts):
        yield structs.replace(step, parts=parts)
    for simpler in (
        structs.replace(step, failures=()),
        structs.replace(step, usage=None),
        structs.replace(step, finish=None),
    ):
        if simpler != step:
            yield simpler


def _without_some(sequence: tuple) -> Iterator[tuple]:
    """Without each half, each quarter … each one."""
    size = (len(sequence) + 1) // 2
    while size:
        for start in range(0, len(sequence), size):
            yield sequence[:start] + sequence[start + size :]
        size = size // 2 if size > 1 else 0


def batches() -> Iterable[int]:
    """The parameters of the fixture `batch`: the first seed of each."""
    return range(FIRST_SEED, FIRST_SEED + PROGRAMS, BATCH_PROGRAMS)


def play_batch(first: int) -> Batch:
    """Play the programs of one batch."""
    last = min(first + BATCH_PROGRAMS, FIRST_SEED + PROGRAMS)
    measured = first == FIRST_SEED
    with fast(measured=measured):
        return Batch([play_seed(seed) for seed in range(first, last)], measured)


@contextmanager
def fast(*, measured: bool) -> Iterator[None]:
    """Collect garbage as rarely as the daemon does, and measure coverage only if `measured`.

    The first batch runs nearly all lines that any runs, and measuring takes three times as long.
    """
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    measuring = None if measured else Coverage.current()
    if measuring:
        measuring.stop()
    try:
        yield
    finally:
        if measuring:
            measuring.start()
        gc.set_threshold(*before)
