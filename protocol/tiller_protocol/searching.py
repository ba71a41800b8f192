"""Ops that list sessions, search their texts, and list the user's earlier inputs."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from tiller_protocol.doc import doc
from tiller_protocol.ids import IdText
from tiller_protocol.op import Op, Result
from tiller_protocol.snapshot import SessionSummary

LIST_LIMIT_MAX = 1_000
"""Maximum number of sessions in one answer to `session_list`."""

QUERY_CHARS_MAX = 1_000
"""Maximum number of characters in a query; people type about ten words."""

SEARCH_LIMIT_MAX = 100
"""Maximum number of sessions in one answer to `session_search`."""

INPUTS_LIMIT_MAX = 1_000
"""Maximum number of inputs in one answer to `input_history`."""

TextKind = Literal["title", "input", "answer", "files"]

OfWorkspace = Annotated[str | None, doc("Only sessions in this directory. Default: all.")]
AfterPage = Annotated[str | None, doc("`next` of the previous page. Default: the first page.")]
NextPage = Annotated[str | None, doc("`after` for the next page; absent on the last page.")]
NotIndexed = Annotated[
    int,
    doc(
        "Number of sessions that are not indexed yet, for example after an upgrade; their texts "
        "may be missing."
    ),
]


class SessionList(Op, frozen=True, tag="session_list"):
    """Lists sessions, most recently active first. Answered by `SessionListResult`.

    Sessions of sub-agents are listed only if `owner_id` or `sub_agents` asks for them.
    """

    workspace: OfWorkspace = None
    archived: Annotated[
        bool, doc("List archived sessions instead of sessions that are not archived.")
    ] = False
    limit: Annotated[
        int, Meta(ge=1, le=LIST_LIMIT_MAX), doc("Maximum number of sessions in the answer.")
    ] = 100
    after: AfterPage = None
    owner_id: Annotated[
        IdText | None, doc("List only the sub-agents that work for this session.")
    ] = None
    sub_agents: Annotated[bool, doc("Include the sessions of all sub-agents.")] = False


class SessionSearch(Op, frozen=True, tag="session_search"):
    """Finds sessions by words in their texts. Answered by `SessionSearchResult`.

    The search covers titles, inputs, the model's answers and names of changed files. It leaves out
    the sessions of sub-agents. Reverted text is still found. Case and accents are ignored. Rejected
    as `empty_input` if the query contains no word.
    """

    query: Annotated[
        str,
        Meta(max_length=QUERY_CHARS_MAX),
        doc(
            "Words that must all occur in the same text. Words in quotes are a phrase; `*` at the "
            "end of a word stands for any ending. No other character is special."
        ),
    ]
    workspace: OfWorkspace = None
    archived: Annotated[bool, doc("Include archived sessions.")] = False
    limit: Annotated[
        int, Meta(ge=1, le=SEARCH_LIMIT_MAX), doc("Maximum number of sessions in the answer.")
    ] = 20
    after: AfterPage = None


class InputHistory(Op, frozen=True, tag="input_history"):
    """Lists the user's inputs in all sessions, newest first. Answered by `InputHistoryResult`.

    A repeated input is listed once. The prompts of sub-agents are left out.
    """

    workspace: OfWorkspace = None
    limit: Annotated[
        int, Meta(ge=1, le=INPUTS_LIMIT_MAX), doc("Maximum number of inputs in the answer.")
    ] = 100
    after: AfterPage = None


class FoundText(Struct, frozen=True, omit_defaults=True):
    """A text of a session that matches a query."""

    kind: Annotated[
        TextKind,
        doc("Kind of text. `files`: names of files that a step changed, separated by spaces."),
    ]
    pieces: Annotated[
        tuple[str, ...],
        doc(
            "An excerpt in one line, in pieces that alternate: text outside a match, then a "
            "match, and so on. The first piece may be empty."
        ),
    ]
    time: Annotated[
        float,
        doc("Time of the text in Unix seconds. A title has the session's time of creation."),
    ]
    seq: Annotated[int, doc("`seq` of the event that has the text; 0 if the text is a title.")] = 0
    turn_id: Annotated[
        str, doc("Id of the turn that the text belongs to; empty if there is none.")
    ] = ""
    item_id: Annotated[
        str, doc("Id of the item that has the text; empty if the text is a title.")
    ] = ""


class FoundSession(Struct, frozen=True, omit_defaults=True):
    """A session with texts that match a query."""

    session: Annotated[SessionSummary, doc("The session, as in `session_list`.")]
    texts: Annotated[
        tuple[FoundText, ...],
        doc("Up to three matching texts: the title first, then the newest texts."),
    ]


class SessionSearchResult(Result, frozen=True, tag="session_search"):
    """A page of the sessions that match a query."""

    found: Annotated[tuple[FoundSession, ...], doc("Sessions, most recently active first.")]
    next: NextPage = None
    not_indexed: NotIndexed = 0


class PastInput(Struct, frozen=True, omit_defaults=True):
    """An earlier input of the user."""

    text: Annotated[str, doc("Text of the input.")]
    time: Annotated[float, doc("Time of the input in Unix seconds.")]
    session_id: Annotated[str, doc("The session.")]


class InputHistoryResult(Result, frozen=True, tag="input_history"):
    """A page of the user's inputs."""

    inputs: Annotated[tuple[PastInput, ...], doc("The inputs, newest first.")]
    next: NextPage = None
    not_indexed: NotIndexed = 0
