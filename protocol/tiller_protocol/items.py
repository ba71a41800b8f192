"""Items: the units of a session's history, and the smaller structs in them.

Each item is a frozen struct with an `id`; the union `Item` is tagged by `type`. A tool call
contains its result, so that history can't contain a call without one.
"""

import operator
from typing import Annotated, Literal

from msgspec import Struct
from msgspec.structs import astuple

from tiller_protocol.doc import doc
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.settings import Rule

Delivery = Literal["start", "steer", "queue"]
MessageState = Literal["streaming", "completed", "interrupted", "discarded"]
ToolCallState = Literal["pending", "running", "completed", "error"]
ToolErrorKind = Literal["failed", "invalid", "denied", "skipped", "aborted", "lost"]
Effect = Literal["read", "write"]
AllowedBy = Literal["rule", "grant", "lasting", "reading", "sandbox", "approve", "user"]

UsdCost = Annotated[float | None, doc("Cost in US dollars. Absent if the price is unknown.")]
StateOfText = Annotated[
    MessageState, doc("`discarded`: ignore this text, because the model request was repeated.")
]
InputFiles = Annotated[tuple[str, ...], doc("Paths of the files that the user mentioned.")]
ClientName = Annotated[str, doc("Name of the frontend that sent the input; empty if unknown.")]


PDF = "application/pdf"
"""The media type of documents among images."""


class Image(Struct, frozen=True, omit_defaults=True):
    """An image from the user or a tool, or a PDF document that the user attached."""

    media_type: Annotated[
        str, doc("Media type, such as `image/png`. The daemon ignores this field in user input.")
    ]
    data: Annotated[bytes, doc("The file's bytes; base64 in JSON.")]
    text: Annotated[
        str,
        doc(
            "Text of a document, for models that don't accept documents. The daemon ignores this "
            "field in user input."
        ),
    ] = ""
    pages: Annotated[
        int, doc("Number of pages of a document. The daemon ignores this field in user input.")
    ] = 0

    @property
    def is_document(self) -> bool:
        """Whether the image is a PDF document."""
        return self.media_type == PDF


InputImages = Annotated[tuple[Image, ...], doc("Images and PDF documents that the user attached.")]


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens as counted by the provider; all 0 if the provider did not count them."""

    input_tokens: Annotated[int, doc("Tokens sent, including cached ones.")] = 0
    cached_input_tokens: Annotated[
        int, doc("Part of `input_tokens`: tokens read from the cache.")
    ] = 0
    output_tokens: Annotated[int, doc("Tokens received, including reasoning.")] = 0
    reasoning_tokens: Annotated[int, doc("Part of `output_tokens`: tokens of reasoning.")] = 0
    cache_write_tokens: Annotated[
        int, doc("Part of `input_tokens`: tokens written to the cache.")
    ] = 0

    @property
    def tokens(self) -> int:
        """The number of tokens sent and received."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum, field by field."""
        return Usage(*map(operator.add, astuple(self), astuple(other)))

    def minus(self, other: "Usage") -> "Usage":
        """Return the difference, field by field."""
        return Usage(*map(operator.sub, astuple(self), astuple(other)))


class UserMessage(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="user_message"):
    """The user's input, which started a turn, steered a turn, or came from the queue."""

    id: Annotated[ItemId, doc("Id of the item.")]
    text: Annotated[str, doc("The user's text.")]
    delivery: Annotated[
        Delivery, doc("Whether the input started a turn, steered a turn, or came from the queue.")
    ]
    images: InputImages = ()
    files: InputFiles = ()
    client: ClientName = ""


class Citation(Struct, frozen=True, omit_defaults=True):
    """A source that the model cites."""

    url: Annotated[str, doc("Address of the source; empty for a file.")] = ""
    title: Annotated[str, doc("Title of the page, or name of the file.")] = ""
    text: Annotated[str, doc("The passage of the source; empty if the provider sends none.")] = ""


class AssistantMessage(
    Struct, frozen=True, omit_defaults=True, tag_field="type", tag="assistant_message"
):
    """Text from the model."""

    id: Annotated[ItemId, doc("Id of the item.")]
    text: Annotated[str, doc("The text so far; complete in `item_completed`.")]
    state: StateOfText
    citations: Annotated[
        tuple[Citation, ...], doc("Sources of the text, in order; only in `item_completed`.")
    ] = ()


class Reasoning(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="reasoning"):
    """The model's reasoning."""

    id: Annotated[ItemId, doc("Id of the item.")]
    text: Annotated[str, doc("Readable text; empty if the provider sends none.")]
    state: StateOfText
    opaque: Annotated[
        str, doc("Data that must be sent back to the provider unchanged; meaningless to others.")
    ] = ""


class SubAgent(Struct, frozen=True, omit_defaults=True):
    """A sub-agent that a call of `task` started, with its usage for this call so far."""

    session_id: Annotated[str, doc("Id of the sub-agent's session.")]
    agent: Annotated[str, doc("Name of the agent.")]
    steps: Annotated[int, doc("Number of model requests so far.")] = 0
    usage: Annotated[Usage, doc("Tokens so far.")] = Usage()
    cost: UsdCost = None


class Allowed(Struct, frozen=True, omit_defaults=True):
    """Why a call is allowed to run. A call that needs several permissions has several reasons."""

    by: Annotated[
        AllowedBy,
        doc(
            "`rule`: a configured or built-in rule. `grant`: a rule of the session, for "
            "example one that the answer `always` added. `lasting`: a rule that the answer "
            "`always_here` made. `reading`: the call seems only to read, and runs in a "
            "read-only sandbox. `sandbox`: nothing that the call can do in the sandbox "
            "needs approval. `approve`: the setting `approve` is `always`. `user`: the "
            "answer to a request."
        ),
    ]
    reason: Annotated[str, doc("The reason in whole sentences, for people.")]
    permission: Annotated[str, doc("The permission that the call needs, such as `bash`.")] = ""
    subject: Annotated[
        str,
        doc("Subject of the permission, such as a command. If there are several, the first one."),
    ] = ""
    rule: Annotated[Rule | None, doc("The rule that decided. Absent if no rule decided.")] = None


class ToolCall(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_call"):
    """A tool call and, once the call has ended, its result."""

    id: Annotated[ItemId, doc("Id of the item.")]
    call_id: Annotated[CallId, doc("The provider's id for the call.")]
    name: Annotated[str, doc("Name of the tool.")]
    arguments: Annotated[str, doc("JSON text, exactly as the model wrote it; may be invalid.")]
    state: Annotated[ToolCallState, doc("State of the call; `completed` and `error` are final.")]
    effect: Annotated[Effect, doc("Whether the call only reads, or can also change something.")] = (
        "write"
    )
    title: Annotated[str, doc("One line about the call; empty until known.")] = ""
    output: Annotated[str, doc("The result that the model gets; may be truncated.")] = ""
    error_kind: Annotated[
        ToolErrorKind | None,
        doc(
            "Kind of the error; present exactly when `state` is `error`. `invalid`: bad arguments. "
            "`denied`: no permission. `skipped`: never began. `aborted`: interrupted. `lost`: the "
            "daemon died during the call."
        ),
    ] = None
    images: Annotated[tuple[Image, ...], doc("Images in the result.")] = ()
    diff: Annotated[str, doc("Unified diff of an edit.")] = ""
    spill_path: Annotated[str, doc("File with the whole output, if `output` is truncated.")] = ""
    exit_status: Annotated[
        int | None, doc("Exit status of a command; absent for other tools and after a timeout.")
    ] = None
    started_at: Annotated[
        float | None, doc("When the call began to run, in Unix seconds. Absent until then.")
    ] = None
    duration_s: Annotated[
        float | None,
        doc("Duration in seconds. Absent if the call has not ended, never began, or is `lost`."),
    ] = None
    discarded: Annotated[
        bool,
        doc(
            "Whether to ignore the call, because the response failed and the model request was "
            "repeated."
        ),
    ] = False
    ordinal: Annotated[
        int,
        doc(
            "Number of the model request that led to the call, counted from 0 in the session; -1 "
            "if the user made the call. Calls of one response have the same ordinal, and their "
            "results go back in one message."
        ),
    ] = 0
    by_user: Annotated[
        bool,
        doc(
            "Whether the user made the call: a `bash` call through the op `shell`, or a `task` "
            "call through input that calls a sub-agent."
        ),
    ] = False
    in_sandbox: Annotated[bool, doc("For a call by the user: whether it ran in a sandbox.")] = False
    by_provider: Annotated[
        bool,
        doc(
            "Whether the provider ran the call. If so, `output` is for people, and its length "
            "is limited."
        ),
    ] = False
    sub_agent: Annotated[SubAgent | None, doc("The sub-agent that works on a `task` call.")] = None
    rewritten_arguments: Annotated[
        str,
        doc("All arguments, as changed by a hook, in JSON text. Empty if no hook changed them."),
    ] = ""
    allowed: Annotated[
        tuple[Allowed, ...],
        doc(
            "Why the call is allowed to run. Empty until the call begins. Always empty if the call "
            "needs no permission, or if the user made the call."
        ),
    ] = ()


class Compaction(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="compaction"):
    """A summary that replaces all items up to and including `replaces_upto`."""

    id: Annotated[ItemId, doc("Id of the item.")]
    summary: Annotated[str, doc("The text that the model gets instead of the summarised items.")]
    replaces_upto: Annotated[ItemId, doc("Id of the last item that the summary replaces.")]
    kept: Annotated[
        tuple[str, ...],
        doc("Ids of user messages that the model still gets, verbatim, before the summary."),
    ] = ()


class Notice(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="notice"):
    """A message from the daemon to the model, for example about an interrupt."""

    id: Annotated[ItemId, doc("Id of the item.")]
    code: Annotated[str, doc("Code of the notice, for programs.")]
    text: Annotated[str, doc("The sentence for the model.")]


class FileChange(Struct, frozen=True, omit_defaults=True):
    """A file that was changed."""

    path: Annotated[str, doc("Path relative to the workspace.")]
    kind: Annotated[Literal["added", "removed", "modified"], doc("Kind of the change.")]
    added_lines: Annotated[int | None, doc("Number of lines; absent if not a text file.")] = None
    removed_lines: Annotated[int | None, doc("Number of lines; absent if not a text file.")] = None


class Patch(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="patch"):
    """The files that a step changed. If `tree_before` is empty, the changes are unknown."""

    id: Annotated[ItemId, doc("Id of the item.")]
    files: Annotated[tuple[str, ...], doc("Paths relative to the workspace.")]
    tree_before: Annotated[str, doc("Git tree before the step; empty if unknown.")] = ""
    tree_after: Annotated[str, doc("Git tree after the step; empty if unknown.")] = ""
    changes: Annotated[tuple[FileChange, ...], doc("The files in `files`, with details.")] = ()
    more: Annotated[int, doc("Number of further changed files, which are not listed.")] = 0
    within: Annotated[tuple[str, ...], doc("The only places covered; empty if all are.")] = ()
    without: Annotated[
        tuple[str, ...],
        doc("Places that the patch omits, because they were reserved for background sub-agents."),
    ] = ()
    unknown: Annotated[tuple[str, ...], doc("Places that reverts must leave as they are.")] = ()


Item = UserMessage | AssistantMessage | Reasoning | ToolCall | Compaction | Notice | Patch


class QueuedInput(Struct, frozen=True, omit_defaults=True):
    """Accepted input that is not in history yet, because it waits for the next step or turn."""

    id: Annotated[str, doc("Id of the input. Ops and answers call it `input_id`.")]
    text: Annotated[str, doc("The user's text.")]
    delivery: Annotated[
        Delivery,
        doc("`steer`: taken at the turn's next step. `queue`: taken after the turn's other work."),
    ]
    images: InputImages = ()
    files: InputFiles = ()
    client: ClientName = ""
    sub_agents: Annotated[
        tuple[str, ...],
        doc(
            "Names of agents that work on this input as sub-agents before the model gets the input."
        ),
    ] = ()


class PlanEntry(Struct, frozen=True, omit_defaults=True):
    """One line of the plan."""

    text: Annotated[str, doc("The task.")]
    state: Annotated[Literal["pending", "in_progress", "completed"], doc("State of the task.")]


BackgroundState = Literal["running", "exited", "killed", "lost"]


class BackgroundCommand(Struct, frozen=True, omit_defaults=True):
    """A command or a sub-agent that outlives its tool call."""

    id: Annotated[str, doc("Id of the command. The op `interrupt` calls it `background_id`.")]
    command: Annotated[str, doc("Command line; for a sub-agent, the agent's name and the task.")]
    state: Annotated[
        BackgroundState,
        doc(
            "`lost`: the daemon died while the command was running, and the next daemon ended the "
            "command."
        ),
    ]
    started_at: Annotated[float, doc("Time of the start in Unix seconds.")]
    item_id: Annotated[str, doc("Id of the tool call that started the command.")] = ""
    output_path: Annotated[str, doc("Path of the file that gets the output.")] = ""
    ended_at: Annotated[
        float | None, doc("Time of the end in Unix seconds; absent before the end.")
    ] = None
    exit_status: Annotated[
        int | None,
        doc(
            "Exit status; present if the command exited on its own. For a sub-agent: 0 if it "
            "completed, 1 if it did not."
        ),
    ] = None
    sub_agent: Annotated[SubAgent | None, doc("For a sub-agent: its session and its usage.")] = None


Background = Annotated[
    tuple[BackgroundCommand, ...],
    doc("Background commands and sub-agents: all that still run, and the latest that have ended."),
]

RequestKind = Literal["approval", "doom_loop", "question"]
Decision = Literal["once", "always", "always_here", "reject", "answer"]
Resolution = Literal["once", "always", "always_here", "reject", "answer", "cancelled"]
DetailKind = Literal["text", "command", "diff"]


class Request(Struct, frozen=True, omit_defaults=True):
    """A question to the user; answered once, by any frontend."""

    id: Annotated[str, doc("Id of the request; `request_id` in ops and events.")]
    kind: Annotated[
        RequestKind,
        doc(
            "`approval`: whether a call is allowed to run. `doom_loop`: whether the turn should "
            "go on although the model keeps repeating a call. `question`: the model's own question."
        ),
    ]
    title: Annotated[str, doc("Summary in one line.")]
    item_id: Annotated[str, doc("Id of the tool call that waits; empty if no call waits.")] = ""
    permission: Annotated[str, doc("The permission that the call needs, such as `bash`.")] = ""
    subjects: Annotated[
        tuple[str, ...], doc("Texts to which permission rules apply: commands, paths, …")
    ] = ()
    always: Annotated[
        tuple[str, ...],
        doc("Patterns that the answer `always` would allow for the rest of the session."),
    ] = ()
    always_here: Annotated[
        str,
        doc(
            "Directory in which the answer `always_here` would allow the patterns in `always` for "
            "every session, by lasting rules. Empty if that answer is not possible."
        ),
    ] = ""
    detail: Annotated[
        str, doc("Everything that the user has to see; empty if the title says it all.")
    ] = ""
    choices: Annotated[tuple[str, ...], doc("Suggested replies to a `question`.")] = ()
    detail_kind: Annotated[
        DetailKind, doc("Kind of text in `detail`, so that frontends need not guess it.")
    ] = "text"
    also: Annotated[tuple[str, ...], doc("Permissions that consent gives the call, too.")] = ()
