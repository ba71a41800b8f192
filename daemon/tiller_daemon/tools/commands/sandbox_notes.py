"""What the sandbox did to a command that has ended, as notes for the model."""

from typing import NamedTuple

from tiller_daemon.sandbox.confinement import CommandSandbox


class SandboxNotes(NamedTuple):
    """Notes for the model, and the line of output that shows that the sandbox stopped a command."""

    notes: tuple[str, ...] = ()
    stopped_by: str = ""


NO_SANDBOX_NOTES = SandboxNotes()


def sandbox_notes(confined: CommandSandbox | None, status: int, output: str) -> SandboxNotes:
    """Return the notes on a command that ended with `status` after printing `output`."""
    if confined is None:
        return NO_SANDBOX_NOTES
    stopped_by = confined.was_denied(status, output)
    explanation = [confined.explain()] if stopped_by else []
    return SandboxNotes((*explanation, *confined.notices), stopped_by)
