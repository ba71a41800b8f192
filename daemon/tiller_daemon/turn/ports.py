"""The turn's ports: the only interfaces through which it reaches the rest of the daemon.

The session implements them, and so do tests. The turn itself imports no socket, database or HTTP
client.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from tiller_daemon.tools.base import ToolResult
from tiller_daemon.tools.write_scope import WriteScope
from tiller_daemon.turn.budget import Spent
from tiller_daemon.turn.retry import RetriedModel
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import AnyBody
from tiller_protocol.items import Effect, Patch, QueuedInput, ToolCall, ToolErrorKind, Usage
from tiller_protocol.settings import FollowUps

Output = Callable[[str], Awaitable[None]]
"""Sends a piece of a call's live output."""


class Emit(Protocol):
    """Records and announces events. The events of one call are committed together."""

    async def __call__(self, *bodies: AnyBody) -> None:
        """Number the bodies at once. Waits only while too many events are uncommitted."""
        ...


class Mailbox(Protocol):
    """Input that arrives while the turn runs. Every method is atomic, without a checkpoint."""

    @property
    def queue(self) -> tuple[QueuedInput, ...]:
        """Input that was accepted and has not been taken."""
        ...

    @property
    def has_steering(self) -> bool:
        """Whether steering is waiting."""
        ...

    @property
    def user_steers(self) -> bool:
        """Whether a user's steering is waiting, so that calls that have not begun are skipped.

        A sub-agent's report skips no calls, because it does not change what the user wants.
        """
        ...

    def take_steering(self) -> tuple[QueuedInput, ...]:
        """Remove and return all steering, oldest first."""
        ...

    def take_follow_ups(self, mode: FollowUps) -> tuple[QueuedInput, ...]:
        """Remove and return the next follow-up, or all of them."""
        ...

    def close(self) -> None:
        """Stop taking input; any that arrives from now on is for the next turn."""
        ...


REJECTED = ErrorInfo("rejected", "The user rejected a tool call.")
"""The reason for the end of a turn whose call the user rejected; its outcome is `blocked`."""


class Refusal(Struct, frozen=True):
    """Why a call does not run."""

    kind: ToolErrorKind
    output: str
    """The result that the model gets."""
    ends_turn: ErrorInfo | None = None
    """Why this ends the turn: the user rejected the call, or it would have completed a loop."""


class PreparedCall(Protocol):
    """One tool call whose tool exists and whose arguments are valid.

    `permit` comes first, then `run`, then `run_again` if the call `was_stopped`.
    """

    @property
    def call(self) -> ToolCall:
        """The call, with its title, the canonical name of its tool, and why it may run."""
        ...

    @property
    def effect(self) -> Effect:
        """Whether the call may write. A call that only reads can run concurrently with others."""
        ...

    @property
    def scope(self) -> WriteScope | None:
        """The scope of a task that declares one; None for all other calls.

        Calls that may write can run concurrently if they have scopes that do not overlap.
        """
        ...

    def permit_early(self) -> bool:
        """Permit the call if it needs no question, and can be dropped and repeated unnoticed.

        Returns whether the call is permitted.
        """
        ...

    @property
    def was_stopped(self) -> bool:
        """Whether the call seemed only to read, but its sandbox stopped it when it wrote."""
        ...

    async def permit(self) -> Refusal | None:
        """Ask the policy, and the user if the policy requires it; None if the call may run."""
        ...

    async def run(self, output: Output) -> ToolResult:
        """Run the call. Raises `ToolFailure`. Cancellation leaves no process behind."""
        ...

    async def run_again(self, begin: Callable[[], Awaitable[None]], output: Output) -> ToolResult:
        """Ask whether a stopped call may write. If so, await `begin` and run the call again.

        Otherwise returns the first result. No other call may run meanwhile. Raises `ToolFailure`.
        """
        ...


class ToolRuntime(Protocol):
    """The tools of a turn."""

    def prepare(self, call: ToolCall) -> PreparedCall | Refusal:
        """Find the tool and validate the arguments. Changes nothing, but resolves paths on disk."""
        ...

    def savepoint(self) -> Callable[[], None]:
        """Return a function that rolls back the later records of calls, such as files read."""
        ...

    async def permit_repetition(self, call: ToolCall) -> Refusal | None:
        """Ask the user whether a call that completes a loop may run; None if it may."""
        ...


class ChangeTracker(Protocol):
    """Detects a step's changes in the workspace. A failure to do so never ends a turn."""

    async def prepare(self) -> None:
        """Begin what `before` does, as a call that may write will probably begin soon."""
        ...

    async def before(self) -> None:
        """Prepare for a call that may write; only the first such call in a step takes time.

        Concurrent calls all wait until the preparation is done.
        """
        ...

    async def after(self) -> Patch | None:
        """Return the changes since `before`; None if there are none, or `before` was not called."""
        ...


class HookDecision(Struct, frozen=True):
    """The decision of the user's hooks."""

    denied: str = ""
    """Why the hooks denied the turn; empty if they did not."""
    context: str = ""
    """Text for the model."""


class Hooks(Protocol):
    """The user's hooks: commands that run at certain moments of a turn."""

    async def turn_started(self, given: str) -> HookDecision:
        """Run the hooks for the start of a turn; `given` is the user's latest message."""
        ...

    async def turn_done(self, last_message: str) -> str:
        """Run the hooks for a turn with nothing left to do; return why it must go on, or ""."""
        ...

    async def before_compaction(self, tokens: int) -> str:
        """Run the hooks before a compaction; return their addition to the summary's request."""
        ...

    async def after_compaction(self, summary: str, tokens: int) -> str:
        """Run the hooks after a compaction; return text for the model."""
        ...


class Spending(Struct, frozen=True):
    """Tells the turn what its sub-agents spend, and tells others what the open step spends."""

    by_others: Callable[[], Spent]
    """Returns the spending of sub-agents."""
    report_step: Callable[[Usage], None]
    """Takes the usage of the open step's response, in case the step does not reach its end."""


class Ports(Struct, frozen=True):
    """Everything that a turn uses from outside."""

    model: RetriedModel
    """Answers the steps."""
    compaction_model: RetriedModel
    """Writes summaries; may be the same as `model`."""
    tools: ToolRuntime
    """Prepares and runs tool calls."""
    emit: Emit
    """Puts events into the outbox."""
    committed: Callable[[], Awaitable[None]]
    """Waits until everything emitted so far is durable."""
    mailbox: Mailbox
    """Holds input that arrives during the turn."""
    changes: ChangeTracker
    """Detects a step's changes in files."""
    hooks: Hooks
    """Runs the user's hooks."""
    new_id: Callable[[], str]
    """Returns an unused id for an item."""
    time: Callable[[], float]
    """Returns Unix seconds."""
    spending: Spending
    """Exchanges figures about spending with sub-agents and the session."""
