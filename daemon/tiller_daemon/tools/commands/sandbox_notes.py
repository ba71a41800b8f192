"""What its sandbox did to a command that has ended, in words for the model."""

from typing import NamedTuple

from tiller_daemon.sandbox.confinement import CommandSandbox


class HeldBack(NamedTuple):
    """What there is to say to the model; `stopped_by` is the line of output that tells, if any."""

    notes: tuple[str, ...] = ()
    stopped_by: str = ""


NOTHING_HELD_BACK = HeldBack()


def held_back(confined: CommandSandbox | None, status: int, output: str) -> HeldBack:
    """What to say of a command that ended with `status` and has printed `output`."""
    if confined is None:
        return NOTHING_HELD_BACK
    stopped_by = confined.was_denied(status, output)
    why = [confined.explain()] if stopped_by else []
    return HeldBack((*why, *confined.notices), stopped_by)
