"""What the turn is handed: the only ways in which it touches the world.

The session implements these; simulation and tests do too. The turn itself imports no socket,
database or HTTP client.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from tiller_daemon.models.base import ModelClient
from tiller_daemon.tools.base import ToolResult
from tiller_daemon.turn.budget import Spent
from tiller_protocol.events import AnyBody
from tiller_protocol.items import Effect, Patch, QueuedInput, ToolCall, ToolErrorKind, Usage
from tiller_protocol.settings import FollowUps

Output = Callable[[str], Awaitable[None]]
"""Takes a piece of live output."""


class Emit(Protocol):
    """Record and announce events; those of one call are committed together."""

    async def __call__(self, *bodies: AnyBody) -> None:
        """Number the bodies at once; waits only while too much is waiting to be committed."""
        ...


class Mailbox(Protocol):
    """Input that arrives while the turn runs. Every method is atomic: none of them waits."""

    @property
    def queue(self) -> tuple[QueuedInput, ...]:
        """What has been accepted and not been taken."""
        ...

    @property
    def has_steering(self) -> bool:
        """Whether steering waits."""
        ...

    def take_steering(self) -> tuple[QueuedInput, ...]:
        """Remove and return all steering, oldest first."""
        ...

    def take_follow_ups(self, mode: FollowUps) -> tuple[QueuedInput, ...]:
        """Remove and return the next follow-up, or all of them."""
        ...

    def close(self) -> None:
        """Take no more: from here on input is for the next turn."""
        ...


class Refusal(Struct, frozen=True):
    """A call that does not run, and what the model is told. A user's no ends the turn."""

    kind: ToolErrorKind
    output: str
    ends_turn: bool = False


class PreparedCall(Protocol):
    """One tool call whose tool exists and whose arguments are valid.

    Its stages: `permit`, `run`, and `run_again` for one that `was_stopped`.
    """

    @property
    def call(self) -> ToolCall:
        """The call, with its title and the name under which its tool is known."""
        ...

    @property
    def effect(self) -> Effect:
        """Whether it only reads, and may run beside other calls."""
        ...

    @property
    def may_begin_early(self) -> bool:
        """Whether it needs no question, and can be dropped and made again unnoticed."""
        ...

    @property
    def was_stopped(self) -> bool:
        """Whether its enclosure stopped it because it wanted to write, though it seemed to read."""
        ...

    async def permit(self) -> Refusal | None:
        """Ask the policy, and the user when the policy says so; None when it may run."""
        ...

    async def run(self, output: Output) -> ToolResult:
        """Run it; raises `ToolFailure`. Cancellation leaves no process behind."""
        ...

    async def run_again(self, begin: Callable[[], Awaitable[None]], output: Output) -> ToolResult:
        """Ask whether a stopped call may write. If so await `begin` and run it again.

        Returns the first result if it may not. No other call may run meanwhile. Raises
        `ToolFailure`.
        """
        ...


class ToolRuntime(Protocol):
    """The tools of a turn."""

    def prepare(self, call: ToolCall) -> PreparedCall | Refusal:
        """Find the tool and validate the arguments; changes nothing, but looks at paths."""
        ...

    def savepoint(self) -> Callable[[], None]:
        """Return a function that forgets what calls note from now on, such as files they read."""
        ...

    async def permit_repetition(self, call: ToolCall) -> Refusal | None:
        """Ask whether a call that repeats itself may go on."""
        ...


class ChangeTracker(Protocol):
    """Notices what a step changes in the workspace. A problem with that never ends a turn."""

    async def before(self) -> None:
        """Call before each call that may write; only the first one in a step takes time."""
        ...

    async def after(self) -> Patch | None:
        """Return what was changed since `before`; None when that is nothing, or was not called."""
        ...


class HookDecision(Struct, frozen=True):
    """What the user's hooks say at a moment: `denied` is the reason for a no, else empty."""

    denied: str = ""
    context: str = ""


class Hooks(Protocol):
    """The user's commands that are told what a turn does."""

    async def turn_started(self, given: str) -> HookDecision:
        """Tell those on the start of a turn what the user said."""
        ...


@dataclass(frozen=True)
class Ports:
    """The turn's hands. `time` is Unix seconds, `committed` waits until all emitted is durable.

    `spent_by_others` is what counts against the turn's budgets beyond its own steps.
    `report_step_usage` takes the usage of a response, for a step that does not get to its end.
    """

    model: ModelClient
    compaction_model: ModelClient
    tools: ToolRuntime
    emit: Emit
    committed: Callable[[], Awaitable[None]]
    mailbox: Mailbox
    changes: ChangeTracker
    hooks: Hooks
    new_id: Callable[[], str]
    time: Callable[[], float]
    random: Callable[[], float]
    spent_by_others: Callable[[], Spent]
    report_step_usage: Callable[[Usage], None]
