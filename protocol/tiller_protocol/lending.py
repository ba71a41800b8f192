"""What a frontend lends to a session that it has open. Loans are not in the log."""

from typing import Annotated

from msgspec import Meta, Struct

from tiller_protocol.doc import doc
from tiller_protocol.ids import IdText
from tiller_protocol.op import Op, SessionRef

LEASE_S = 600.0
"""How long a loan lasts without being renewed: long enough for a busy machine or a broken link,
short enough that the programs of an editor that was killed do not pile up."""

LENT_SERVERS_MAX = 32
"""Maximum number of MCP servers in one loan; an editor has a handful."""

LENT_TEXT_CHARS_MAX = 1024 * 1024
"""Longest text of a file that a frontend is asked for: people rarely edit longer ones."""


class LentServer(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An MCP server: a program, or an address of the streamable HTTP transport."""

    name: Annotated[str, doc("1 to 32 letters, digits, `-` and `_`.")]
    command: Annotated[tuple[str, ...], doc("Program and arguments; empty if `url` is set.")] = ()
    env: Annotated[dict[str, str], doc("Variables of the program; may hold secrets.")] = {}
    url: Annotated[str | None, doc("Address of the server; absent if `command` is set.")] = None
    headers: Annotated[dict[str, str], doc("Sent with each request; may hold secrets.")] = {}


class SessionLend(Op, frozen=True, tag="session_lend"):
    """Lends a session what a frontend has, or ends the loan if the fields are absent.

    Not an event and not in the log, since it may hold secrets. A loan ends 10 minutes after it was
    last sent, or with the daemon, so send it again every few minutes and before each input. What a
    running turn uses stays until the turn ends.
    """

    session_id: SessionRef
    lender: Annotated[IdText, doc("Chosen by the frontend; each lender has one loan per session.")]
    mcp_servers: Annotated[
        tuple[LentServer, ...],
        Meta(max_length=LENT_SERVERS_MAX),
        doc(
            "MCP servers for the turns of this session and its sub-agents, beside the configured "
            "ones. A configured server of the same name takes precedence."
        ),
    ] = ()
    reads_files: Annotated[
        bool,
        doc("Whether the frontend knows unsaved files; it then gets `FileWanted` questions."),
    ] = False


class LentFile(Op, frozen=True, tag="lent_file"):
    """Answers a `FileWanted`. Not in the log; an answer that comes too late is dropped."""

    question_id: IdText
    text: Annotated[
        Annotated[str, Meta(max_length=LENT_TEXT_CHARS_MAX)] | None,
        doc("The whole text in the editor; absent if the frontend can't tell."),
    ] = None


class FileWanted(Struct, frozen=True, omit_defaults=True):
    """Asks a lender for a file; published under the topic `lender/` and its name.

    To be answered by `lent_file` within 2 seconds. Then the file on disk is used, and the lender is
    not asked again until it lends again.
    """

    question_id: Annotated[str, doc("Id for the answer.")]
    session_id: Annotated[str, doc("The session that the lender lends to.")]
    path: Annotated[str, doc("Absolute; below the workspace of the session.")]


LENDER_TOPICS = "lender/"
"""Prefix of the topics of questions to lenders; the name of the lender follows."""


def lender_topic(lender: str) -> str:
    """The topic of the questions to a lender."""
    return LENDER_TOPICS + lender
