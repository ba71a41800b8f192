"""Runs one hook, which gets JSON on standard input and answers with a limited amount of output."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import trio
from msgspec import Struct, structs

from tiller_daemon.config import Hook
from tiller_daemon.isolation import set_inside
from tiller_daemon.processes.command import CommandProblem
from tiller_daemon.processes.server_process import ServerProcess
from tiller_daemon.sandbox.base import CommandSandbox, SandboxError, WrappedCommand

OUTPUT_BYTES_MAX: Final = 32 * 1024
"""How many bytes of a hook's output are used; more would not help a model."""

READ_BYTES: Final = 1 << 16

DRAIN_S: Final = 0.15
"""How long to use the pipes after the hook has exited, as a descendant may keep them open."""

END_GRACE_S: Final = 0.2
"""The time from SIGTERM to SIGKILL after an interrupt or the time limit."""

DENY_STATUS: Final = 2
"""The exit status of a denial; with 0 the hook does not deny, and any other status is a failure."""

NAME_CHARS_MAX: Final = 60

REASON_CHARS_MAX: Final = 200
"""How much of the end of a failed hook's output to report."""


class HookProblem(Exception):
    """A hook failed; the message is a clause with the reason."""


class HookOutput(Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON that a hook may print, or its plain output in the same form.

    It has the decision, the reason for a denial, text for the model, and new arguments.
    """

    decision: Literal["go_on", "deny"] = "go_on"
    reason: str = ""
    context: str = ""
    arguments: dict[str, Any] | None = None

    @property
    def denies(self) -> bool:
        """Whether the hook denies the call or the turn."""
        return self.decision == "deny"


async def run_hook(
    hook: Hook,
    payload: bytes,
    directory: Path,
    variables: Mapping[str, str],
    sandbox: CommandSandbox | None = None,
) -> HookOutput:
    """Run a hook, in the `sandbox` if given; raises `HookProblem`.

    Cancellation ends all processes of the hook.
    """
    command = hook.command
    words = ("/bin/sh", "-c", command) if isinstance(command, str) else command
    arguments, variables = set_inside(words, variables) if sandbox else (words, variables)
    wrapped = WrappedCommand(arguments)
    with ExitStack() as stack:
        try:
            if sandbox:
                wrapped = stack.enter_context(sandbox.wrap(wrapped.arguments))
            service = ServerProcess(wrapped.arguments, directory, variables, wrapped.descriptors)
        except (CommandProblem, SandboxError) as problem:
            raise HookProblem(str(problem).rstrip(".")) from problem
        return await _run(service, hook, payload)


async def _run(service: ServerProcess, hook: Hook, payload: bytes) -> HookOutput:
    out, err = bytearray(), bytearray()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_write_input, service, payload)
            nursery.start_soon(_read, service.stdout, out)
            nursery.start_soon(_read, service.stderr, err)
            with trio.move_on_after(hook.timeout_s) as limit:
                await service.exited()
            nursery.cancel_scope.deadline = trio.current_time() + DRAIN_S
    finally:
        status = service.status()
        # Descendants must not outlive the hook, even if it has exited.
        await service.end(exit_wait_s=0, grace_s=END_GRACE_S)
    if limit.cancelled_caught:
        raise HookProblem(f"it was stopped after its time limit of {hook.timeout_s:g} s")
    return _parse_output(status, bytes(out), bytes(err))


def hook_name(hook: Hook) -> str:
    """Return a hook's name for people: the configured name, or the beginning of its command."""
    command = hook.command if isinstance(hook.command, str) else " ".join(hook.command)
    # Always one line, so that a project can't make the rest look like someone else's message.
    line = " ".join((hook.name or command).split())
    return line if len(line) <= NAME_CHARS_MAX else line[: NAME_CHARS_MAX - 1] + "…"


async def _write_input(service: ServerProcess, payload: bytes) -> None:
    try:
        await service.stdin.send_all(payload)
        await service.stdin.aclose()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # a hook need not read its input


async def _read(pipe: trio.lowlevel.FdStream, output: bytearray) -> None:
    """Keep the beginning of the output and discard the rest, so that the hook never blocks."""
    while piece := await pipe.receive_some(READ_BYTES):
        output += piece[: OUTPUT_BYTES_MAX - len(output)]


def _parse_output(status: int | None, out: bytes, err: bytes) -> HookOutput:
    if status == DENY_STATUS:
        return HookOutput("deny", _decode(err) or _decode(out))
    if status != 0:
        how = f"was killed by signal {-status}" if status and status < 0 else f"ended with {status}"
        reason = _end_of(" ".join(_decode(err).split()))
        raise HookProblem(f"it {how}" + (f": {reason}" if reason else ""))
    text = _decode(out)
    if not text.startswith("{"):
        return HookOutput(context=text)
    try:
        output = msgspec.json.decode(text, type=HookOutput)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HookProblem(f"it printed invalid JSON: {error}") from error
    return structs.replace(output, reason=output.reason.strip(), context=output.context.strip())


def _end_of(line: str) -> str:
    """Return the end of a line, from the beginning of a word on if possible."""
    if len(line) <= REASON_CHARS_MAX:
        return line
    end = line[-REASON_CHARS_MAX:]
    return f"… {end.partition(' ')[2] or end}"


def _decode(data: bytes) -> str:
    return data.decode(errors="replace").replace("\0", "").strip()
