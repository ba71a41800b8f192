"""What the sandbox did to a command that has ended, as notes for the model."""

from typing import NamedTuple

from tiller_daemon.sandbox.confinement import CommandSandbox


class SandboxNotes(NamedTuple):
    """Notes for the model, and the line of output that shows that the sandbox stopped a command."""

    notes: tuple[str, ...] = ()
    stopped_by: str = ""


NO_SANDBOX_NOTES = SandboxNotes()


NOT_RUN = "The command did not run, because its sandbox could not be set up. Tell the user."


def sandbox_notes(
    confined: CommandSandbox | None, status: int, output: str, *, has_run: bool
) -> SandboxNotes:
    """Return the notes on a command that ended with `status` after printing `output`.

    If not `has_run`, status and output are those of the sandbox's program.
    """
    if confined is None:
        return NO_SANDBOX_NOTES
    stopped_by = confined.was_denied(status, output)
    if not has_run:
        return SandboxNotes((NOT_RUN,), stopped_by)
    explanation = [confined.explain()] if stopped_by else []
    return SandboxNotes((*explanation, *confined.notices), stopped_by)
