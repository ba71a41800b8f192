"""The lines of `tiller rpc`: one JSON object each, with one main field that names its kind.

They carry submissions, answers and events as the sockets do. The daemon knows nothing of them.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from tiller_protocol.answers import AnyAnswer, HelloResult
from tiller_protocol.doc import doc
from tiller_protocol.events import Event
from tiller_protocol.ids import IdText
from tiller_protocol.lending import FileWanted
from tiller_protocol.ops import AnyOp

Tag = str | int


class RpcSubmission(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A submission without the token, which `tiller rpc` adds."""

    op: Annotated[AnyOp, doc("What to do.")]
    id: Annotated[
        IdText | None,
        doc(
            "As in `Submission`: the same id sent again, even by another process, gets the same "
            "answer. Absent: `tiller rpc` creates an id."
        ),
    ] = None
    client: Annotated[str, doc("The frontend's name; absent: that of `tiller rpc --name`.")] = ""


class RpcInput(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A line to `tiller rpc`, with exactly one of `submit`, `follow` and `unfollow`."""

    submit: Annotated[
        RpcSubmission | None,
        doc(
            "Submit an op; an `answer` or an `error` follows. Ops on the same session are "
            "submitted in order, each after the previous one was answered."
        ),
    ] = None
    follow: Annotated[
        IdText | None,
        doc("Send the events of this session; `daemon`: life-cycle events of all sessions."),
    ] = None
    after: Annotated[
        int, Meta(ge=0, description="For `follow`: start after the event with this `seq`.")
    ] = 0
    unfollow: Annotated[
        IdText | None, doc("Stop sending the events of this session; `unfollowed` confirms it.")
    ] = None
    tag: Annotated[Tag | None, doc("Comes back with `answer`, `error` and `unfollowed`.")] = None


class CaughtUp(Struct, frozen=True):
    """How far a session's events have been sent."""

    session_id: Annotated[str, doc("The session.")]
    seq: Annotated[int, doc("The last event so far.")]


class Followers(Struct, frozen=True):
    """Who else has a followed session open."""

    session_id: Annotated[str, doc("The session.")]
    names: Annotated[
        tuple[str, ...],
        doc("Names of the other frontends; several may have the same name."),
    ]


class Unfollowed(Struct, frozen=True, omit_defaults=True):
    """A session that is no longer followed."""

    session_id: Annotated[str, doc("The session.")]
    message: Annotated[
        str, doc("Why, unless `unfollow` asked for it: for example, there is no such session.")
    ] = ""


class RpcError(Struct, frozen=True, omit_defaults=True):
    """A line that could not be carried out, or whose answer is unknown."""

    line: Annotated[int, doc("Number of the line, from 1.")]
    message: Annotated[str, doc("A sentence for a person.")]
    submission_id: Annotated[
        str,
        doc(
            "The daemon has not answered in time, and the op may still take effect. Submit it "
            "again with this `id` to get its answer."
        ),
    ] = ""


class RpcOutput(Struct, frozen=True, omit_defaults=True):
    """A line from `tiller rpc`, with exactly one field apart from `hello`, `message` and `tag`."""

    state: Annotated[
        Literal["connected", "reconnecting"] | None,
        doc("`connected` (the first line), or `reconnecting` while there is no daemon."),
    ] = None
    hello: Annotated[HelloResult | None, doc("With `connected`: the daemon.")] = None
    message: Annotated[str, doc("With `reconnecting`: why reconnecting fails, if it does.")] = ""
    answer: Annotated[AnyAnswer | None, doc("The answer to a submission.")] = None
    event: Annotated[
        Event | None, doc("The next event of a followed session, in order and only once.")
    ] = None
    notification: Annotated[
        Event | None,
        doc(
            "A life-cycle event of any session, after `follow` of `daemon`. Some may be missing: "
            "list the sessions again after `connected`, and from time to time."
        ),
    ] = None
    caught_up: Annotated[
        CaughtUp | None,
        doc("Sent once after `follow`: all events so far were sent; later ones are live."),
    ] = None
    followers: Annotated[
        Followers | None,
        doc("Who else has a followed session open: at once if anyone has, then at each change."),
    ] = None
    started_over: Annotated[
        str | None,
        doc("The daemon has a new log: forget this session's events; all are sent again."),
    ] = None
    unfollowed: Annotated[
        Unfollowed | None, doc("No further event of this session follows this line.")
    ] = None
    file_wanted: Annotated[
        FileWanted | None,
        doc(
            "A question to a lender whose `session_lend` with `reads_files` was submitted here; "
            "answer with `lent_file`."
        ),
    ] = None
    error: Annotated[RpcError | None, doc("Why a line has no answer.")] = None
    tag: Annotated[Tag | None, doc("`tag` of the line that this is about.")] = None
