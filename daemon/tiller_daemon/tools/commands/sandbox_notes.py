"""What its sandbox did to a command that has ended, in words for the model."""

from typing import NamedTuple

from tiller_daemon.sandbox.confinement import Confined


class SandboxNotes(NamedTuple):
    """What there is to say to the model; `stopped_by` is the line of output that tells, if any."""

    notes: tuple[str, ...] = ()
    stopped_by: str = ""


NO_SANDBOX_NOTES = SandboxNotes()


def sandbox_notes(confined: Confined | None, status: int, output: str) -> SandboxNotes:
    """What to say of a command that ended with `status` and has printed `output`."""
    if confined is None:
        return NO_SANDBOX_NOTES
    stopped_by = confined.was_denied(status, output)
    why = [confined.explain()] if stopped_by else []
    return SandboxNotes((*why, *confined.told), stopped_by)
