"""The lines of `tiller rpc`: each is a JSON object with one main field that names its kind.

They carry the same submissions, answers and events as the sockets. The daemon does not use them.
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

    op: Annotated[AnyOp, doc("The op to submit.")]
    id: Annotated[
        IdText | None,
        doc(
            "Id as in `Submission`. If the same id is sent again, even by another process, the "
            "answer is the same. Default: a new id."
        ),
    ] = None
    client: Annotated[
        str, doc("Name of the frontend. Default: the name given by `tiller rpc --name`.")
    ] = ""


class RpcInput(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A line to `tiller rpc`, with exactly one of `submit`, `follow` and `unfollow`."""

    submit: Annotated[
        RpcSubmission | None,
        doc(
            "Submit an op; the `answer` or an `error` follows. Ops on the same session are "
            "submitted in order, each after the previous op was answered."
        ),
    ] = None
    follow: Annotated[
        IdText | None,
        doc("Send the events of this session; `daemon` means life-cycle events of all sessions."),
    ] = None
    after: Annotated[
        int, Meta(ge=0, description="For `follow`: start after the event with this `seq`.")
    ] = 0
    unfollow: Annotated[
        IdText | None,
        doc("Stop sending the events of this session; a line with `unfollowed` confirms the stop."),
    ] = None
    tag: Annotated[
        Tag | None, doc("Value that is sent back with `answer`, `error` and `unfollowed`.")
    ] = None


class CaughtUp(Struct, frozen=True):
    """How far a session's events have been sent."""

    session_id: Annotated[str, doc("The session.")]
    seq: Annotated[int, doc("`seq` of the last event so far.")]


class Followers(Struct, frozen=True):
    """The other frontends that have a followed session open."""

    session_id: Annotated[str, doc("The session.")]
    names: Annotated[
        tuple[str, ...], doc("Names of the other frontends; several may have the same name.")
    ]


class Unfollowed(Struct, frozen=True, omit_defaults=True):
    """A session that is no longer followed."""

    session_id: Annotated[str, doc("The session.")]
    message: Annotated[
        str,
        doc(
            "Why the session is no longer followed, for example because it does not exist; "
            "empty after `unfollow`."
        ),
    ] = ""


class RpcError(Struct, frozen=True, omit_defaults=True):
    """An input line that could not be carried out, or whose answer is unknown."""

    line: Annotated[int, doc("The input line, counted from 1.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]
    submission_id: Annotated[
        str,
        doc(
            "Id of an op that was not answered in time and may still take effect. Submit it "
            "again with this `id` to get its answer."
        ),
    ] = ""


class RpcOutput(Struct, frozen=True, omit_defaults=True):
    """A line from `tiller rpc`, with exactly one field apart from `hello`, `message` and `tag`."""

    state: Annotated[
        Literal["connected", "reconnecting"] | None,
        doc(
            "`connected`: sent in the first line, and when the daemon is back. `reconnecting`: "
            "sent when there is no daemon."
        ),
    ] = None
    hello: Annotated[HelloResult | None, doc("With `connected`: the daemon's greeting.")] = None
    message: Annotated[str, doc("With `reconnecting`: why reconnecting fails, if it does.")] = ""
    answer: Annotated[AnyAnswer | None, doc("The answer to a submission.")] = None
    event: Annotated[
        Event | None, doc("The next event of a followed session. Each event comes once, in order.")
    ] = None
    notification: Annotated[
        Event | None,
        doc(
            "A life-cycle event of any session, if `daemon` is followed. Some events may be "
            "missing, so list the sessions again after `connected`, and from time to time."
        ),
    ] = None
    caught_up: Annotated[
        CaughtUp | None,
        doc(
            "Sent once after `follow`, when all events so far have been sent. Later events are "
            "live."
        ),
    ] = None
    followers: Annotated[
        Followers | None,
        doc(
            "The other frontends that have a followed session open. Sent at once if there are any, "
            "and then at each change."
        ),
    ] = None
    started_over: Annotated[
        str | None,
        doc(
            "Id of a session whose events start over, because the daemon has a new log. Forget "
            "the session's events; all events are sent again."
        ),
    ] = None
    unfollowed: Annotated[
        Unfollowed | None,
        doc("A session that is no longer followed; none of its events comes after this line."),
    ] = None
    file_wanted: Annotated[
        FileWanted | None,
        doc(
            "A question to a lender whose `session_lend` with `reads_files` was submitted through "
            "this process. Answer with `lent_file`."
        ),
    ] = None
    error: Annotated[RpcError | None, doc("Why an input line has no answer.")] = None
    tag: Annotated[Tag | None, doc("The `tag` of the input line that this line answers.")] = None
