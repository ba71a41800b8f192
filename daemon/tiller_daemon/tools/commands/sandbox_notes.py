"""What the sandbox did to a command that has ended, as notes for the model."""

from typing import NamedTuple

from tiller_daemon.sandbox.base import CommandSandbox


class SandboxNotes(NamedTuple):
    """Notes for the model.

    `stopped_by` is the line of output that shows that the sandbox stopped the command, and `missed`
    an existing path that the command could not see.
    """

    notes: tuple[str, ...] = ()
    stopped_by: str = ""
    missed: str = ""


NO_SANDBOX_NOTES = SandboxNotes()


HIDDEN = "{path} exists, but the sandbox hides it. The user can add it to `sandbox.readable`."

NOT_RUN = "The command did not run, because its sandbox could not be set up. Tell the user."


def sandbox_notes(
    sandbox: CommandSandbox | None, status: int, output: str, *, has_run: bool
) -> SandboxNotes:
    """Return the notes on a command that ended with `status` after printing `output`.

    If not `has_run`, status and output are those of the sandbox's program.
    """
    if sandbox is None:
        return NO_SANDBOX_NOTES
    if not has_run:
        return SandboxNotes((NOT_RUN,))
    stopped_by = sandbox.was_denied(status, output)
    # To show the path would not be enough for a command that was stopped, too.
    missed = sandbox.missed(output) if status and not stopped_by else None
    explanation = [sandbox.explain()] if stopped_by else []
    if missed:
        stopped_by = str(missed)
        explanation = [HIDDEN.format(path=missed)]
    return SandboxNotes((*explanation, *sandbox.notices), stopped_by, str(missed or ""))
