"""What its sandbox did to a command that has ended, in words for the model."""

from typing import NamedTuple

from tiller_daemon.workspace.sandbox import Confined


class HeldBack(NamedTuple):
    """What there is to say; `failed_by_it` if the command looks as if the sandbox made it fail."""

    notes: tuple[str, ...] = ()
    failed_by_it: bool = False


NOTHING_HELD_BACK = HeldBack()


def held_back(confined: Confined | None, status: int, output: str) -> HeldBack:
    """What to say of a command that ended with `status` and has printed `output`."""
    if confined is None:
        return NOTHING_HELD_BACK
    why = confined.explain(output) if status else ""
    return HeldBack((*([why] if why else []), *confined.told), bool(why))
