"""Loans from a frontend to a session that it has open: MCP servers and the text of files.

Loans are not in the log.
"""

from typing import Annotated

from msgspec import Meta, Struct

from tiller_protocol.doc import doc
from tiller_protocol.ids import IdText
from tiller_protocol.op import Op, SessionRef

LEASE_S = 600.0
"""How long a loan lasts without renewal: long enough to survive a busy machine or a broken link,
short enough that programs of killed editors do not pile up."""

LENT_SERVERS_MAX = 32
"""Maximum number of MCP servers in one loan; an editor has a handful."""

LENT_TEXT_CHARS_MAX = 1024 * 1024
"""Longest text of a file in a lender's answer; people rarely edit longer files."""


class LentServer(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An MCP server: a program, or an address of the streamable HTTP transport."""

    name: Annotated[str, doc("Name of 1 to 32 letters, digits, `-` and `_`.")]
    command: Annotated[tuple[str, ...], doc("Program and arguments; empty if `url` is set.")] = ()
    env: Annotated[dict[str, str], doc("Variables for the program; may contain secrets.")] = {}
    url: Annotated[str | None, doc("Address of the server; absent if `command` is set.")] = None
    headers: Annotated[
        dict[str, str], doc("Headers to send with each request; may contain secrets.")
    ] = {}


class SessionLend(Op, frozen=True, tag="session_lend"):
    """Lends MCP servers or unsaved files to a session. If the op lends neither, it ends the loan.

    A loan also ends when the daemon ends, or after 10 minutes. To renew the loan, submit the op
    again every few minutes and before each input.
    """

    session_id: SessionRef
    lender: Annotated[
        IdText, doc("Id chosen by the frontend; each lender has one loan per session.")
    ]
    mcp_servers: Annotated[
        tuple[LentServer, ...],
        Meta(max_length=LENT_SERVERS_MAX),
        doc(
            "MCP servers for the turns of this session and its sub-agents, in addition to the "
            "configured servers. A configured server with the same name takes precedence."
        ),
    ] = ()
    reads_files: Annotated[
        bool,
        doc(
            "Whether the frontend knows the unsaved text of files; if so, it gets `FileWanted` "
            "questions."
        ),
    ] = False


class LentFile(Op, frozen=True, tag="lent_file"):
    """Answers a `FileWanted` message. A late answer is ignored."""

    question_id: IdText
    text: Annotated[
        Annotated[str, Meta(max_length=LENT_TEXT_CHARS_MAX)] | None,
        doc("The whole text in the editor; absent if the frontend can't provide it."),
    ] = None


class FileWanted(Struct, frozen=True, omit_defaults=True):
    """Asks a lender for a file. The topic is `lender/`, followed by the lender's id.

    The lender should answer with `lent_file` within 2 seconds. If it does not, the file on disk is
    used, and the lender is not asked again until it lends again.
    """

    question_id: Annotated[str, doc("Id to repeat in `lent_file`.")]
    session_id: Annotated[str, doc("Id of the session.")]
    path: Annotated[str, doc("Absolute path of a file in the session's workspace.")]


LENDER_TOPICS = "lender/"
"""Prefix of the topics for questions to lenders; the lender's id follows."""


def lender_topic(lender: str) -> str:
    """The topic for questions to a lender."""
    return LENDER_TOPICS + lender
