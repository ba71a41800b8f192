"""Items: the units of a session's history, and the small structs they are made of.

Each item is a frozen struct with an `id`; the union `Item` is tagged by `type`. What a tool call
answered lives in the call itself, so that a call without a result can't be stored.
"""

from typing import Literal

from msgspec import Struct

from tiller_protocol.ids import CallId, ItemId

Delivery = Literal["start", "steer", "queue"]
MessageState = Literal["streaming", "completed", "interrupted", "discarded"]
ToolCallState = Literal["pending", "running", "completed", "error"]
ToolErrorKind = Literal["failed", "invalid", "denied", "skipped", "aborted", "lost"]
Effect = Literal["read", "write"]


class Image(Struct, frozen=True, omit_defaults=True):
    """An image given by the user or shown by a tool; `data` is the encoded file."""

    media_type: str
    data: bytes


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens as the provider counted them.

    `cached_input_tokens`, read from its cache, and `cache_write_tokens`, written there, are part of
    `input_tokens`; `reasoning_tokens` are part of `output_tokens`.
    """

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum, field by field."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )

    def minus(self, other: "Usage") -> "Usage":
        """Return the difference, field by field."""
        return Usage(
            self.input_tokens - other.input_tokens,
            self.cached_input_tokens - other.cached_input_tokens,
            self.output_tokens - other.output_tokens,
            self.reasoning_tokens - other.reasoning_tokens,
            self.cache_write_tokens - other.cache_write_tokens,
        )


class UserMessage(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="user_message"):
    """What a person said: at the start of a turn, as steering, or as a follow-up."""

    id: ItemId
    text: str
    delivery: Delivery
    images: tuple[Image, ...] = ()
    files: tuple[str, ...] = ()
    client: str = ""


class AssistantMessage(
    Struct, frozen=True, omit_defaults=True, tag_field="type", tag="assistant_message"
):
    """Text of the model. A `discarded` one belongs to a stream that failed and was retried."""

    id: ItemId
    text: str
    state: MessageState


class Reasoning(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="reasoning"):
    """Thinking of the model; `opaque` is what its provider wants back unchanged."""

    id: ItemId
    text: str
    state: MessageState
    opaque: str = ""


class SubAgent(Struct, frozen=True, omit_defaults=True):
    """The session that a call of `task` started, and what it has spent for that call so far.

    `cost` is in US dollars; `None` means that the price is unknown.
    """

    session_id: str
    agent: str
    steps: int = 0
    usage: Usage = Usage()
    cost: float | None = None


class ToolCall(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_call"):
    """One call of a tool and, once it has ended, its result.

    `arguments` is the JSON text as the model wrote it. `output` is what the model sees; the whole
    of a cut output is in the file `spill_path`. `started_at` is Unix seconds, set when the call
    begins to run. `error_kind` is set exactly when `state` is `error`. `ordinal` counts the model
    requests of the session from 0: calls of one response share it, and only they go back to the
    model as one message. With `by_user` the user made the call by the op `shell`, and the model is
    told of it as of something that was said. `sub_agent` names the session that does the work.
    """

    id: ItemId
    call_id: CallId
    name: str
    arguments: str
    state: ToolCallState
    effect: Effect = "write"
    title: str = ""
    output: str = ""
    error_kind: ToolErrorKind | None = None
    images: tuple[Image, ...] = ()
    diff: str = ""
    spill_path: str = ""
    exit_status: int | None = None
    started_at: float | None = None
    duration_s: float | None = None
    discarded: bool = False
    ordinal: int = 0
    by_user: bool = False
    sub_agent: SubAgent | None = None


class Compaction(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="compaction"):
    """A summary that stands for every item up to and including `replaces_upto`.

    The user messages in `kept` are still sent word for word, before the summary.
    """

    id: ItemId
    summary: str
    replaces_upto: ItemId
    kept: tuple[str, ...] = ()


class Notice(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="notice"):
    """Something the daemon tells the model, such as that the last turn was interrupted."""

    id: ItemId
    code: str
    text: str


class FileChange(Struct, frozen=True, omit_defaults=True):
    """A file that was changed. The counts of lines are `None` for what is not text."""

    path: str
    kind: Literal["added", "removed", "modified"]
    added_lines: int | None = None
    removed_lines: int | None = None


class Patch(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="patch"):
    """Files that one step changed, and the snapshot trees before and after.

    `files` are relative to the workspace, `changes` say more of each; `more` are changed as well
    and not named. Without trees it is not known what the step changed.
    """

    id: ItemId
    files: tuple[str, ...]
    tree_before: str = ""
    tree_after: str = ""
    changes: tuple[FileChange, ...] = ()
    more: int = 0


Item = UserMessage | AssistantMessage | Reasoning | ToolCall | Compaction | Notice | Patch


class QueuedInput(Struct, frozen=True, omit_defaults=True):
    """Input that was accepted and is not yet in history: steering on its way, or a follow-up."""

    id: str
    text: str
    delivery: Delivery
    images: tuple[Image, ...] = ()
    files: tuple[str, ...] = ()
    client: str = ""


class PlanEntry(Struct, frozen=True, omit_defaults=True):
    """One line of the plan."""

    text: str
    state: Literal["pending", "in_progress", "completed"]


BackgroundState = Literal["running", "exited", "killed", "lost"]


class BackgroundCommand(Struct, frozen=True, omit_defaults=True):
    """A command that outlives its call. Times are Unix seconds; `output_path` is a file.

    It is `lost` when the daemon was killed while it ran; what was left of it was ended then.
    """

    id: str
    command: str
    state: BackgroundState
    started_at: float
    item_id: str = ""
    output_path: str = ""
    ended_at: float | None = None
    exit_status: int | None = None


RequestKind = Literal["approval", "doom_loop", "question"]
Decision = Literal["once", "always", "reject", "answer"]
Resolution = Literal["once", "always", "reject", "answer", "cancelled"]
DetailKind = Literal["text", "command", "diff"]


class Request(Struct, frozen=True, omit_defaults=True):
    """A question of the daemon to the user; answered once, by any frontend.

    `subjects` are what the permission rules are matched against (a command, a path); `always` are
    the patterns that the answer `always` would allow for the rest of the session. `title` is a
    summary in one line; `detail` is all of what is asked about, and `detail_kind` says what it is:
    nobody guesses that from its text.
    """

    id: str
    kind: RequestKind
    title: str
    item_id: str = ""
    permission: str = ""
    subjects: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    detail: str = ""
    choices: tuple[str, ...] = ()
    detail_kind: DetailKind = "text"
