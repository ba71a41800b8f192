"""The one codec: messages to bytes and back, for bytes that nobody vouches for.

msgpack on the wire; the ops socket also takes JSON and is answered in kind. Every way in which
decoding can fail ends as `BadMessage`. The size of a message is limited by the transport.
"""

from typing import Any, Literal, NamedTuple

import msgspec

from tiller_protocol.answers import AnyAnswer
from tiller_protocol.errors import BadMessage
from tiller_protocol.events import Event
from tiller_protocol.ids import IdText
from tiller_protocol.ops import AnyOp, Submission, UserInput

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""Largest message either side takes; the transport refuses a longer one before it is read."""

REPLAY_BYTES_MAX = 1024 * 1024
"""A `replay` answer stays under this unless a single event is larger."""

INPUT_BYTES_MAX = 8 * 1024 * 1024
"""Largest user input: half a message, so that it fits into one with everything around it."""

TOPIC_END = b"\0"

Encoding = Literal["msgpack", "json"]

_to_msgpack = msgspec.msgpack.Encoder().encode
_to_json = msgspec.json.Encoder().encode


class Envelope(msgspec.Struct, frozen=True):
    """A submission whose op is still bytes, so that the token is checked before anything else."""

    id: IdText
    op: msgspec.Raw
    client: str = ""
    token: str = ""


class Frame(NamedTuple):
    """An envelope and the encoding it came in; the answer goes back in the same one."""

    envelope: Envelope
    encoding: Encoding


_envelope_of = {
    "msgpack": msgspec.msgpack.Decoder(Envelope).decode,
    "json": msgspec.json.Decoder(Envelope).decode,
}
_op_of = {
    "msgpack": msgspec.msgpack.Decoder(AnyOp).decode,
    "json": msgspec.json.Decoder(AnyOp).decode,
}
_answer_of = {
    "msgpack": msgspec.msgpack.Decoder(AnyAnswer).decode,
    "json": msgspec.json.Decoder(AnyAnswer).decode,
}
_event_of = msgspec.msgpack.Decoder(Event).decode

_DECODE_ERRORS = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    RecursionError,
    MemoryError,
    OverflowError,
    TypeError,
    ValueError,
)
"""What msgspec raises for hostile input besides its own errors (measured: nesting, bad UTF-8)."""


def encoding_of(data: bytes | memoryview) -> Encoding:
    """Tell JSON, which begins with `{` or a blank, from msgpack."""
    return "json" if data[:1] in (b"{", b" ", b"\n", b"\t", b"\r") else "msgpack"


def encode_submission(submission: Submission, encoding: Encoding = "msgpack") -> bytes:
    """Bytes of a submission."""
    return _to_msgpack(submission) if encoding == "msgpack" else _to_json(submission)


def decode_envelope(data: bytes | memoryview) -> Frame:
    """Open a submission as far as its token; its op stays in `data`. Raises `BadMessage`."""
    encoding = encoding_of(data)
    try:
        return Frame(_envelope_of[encoding](data), encoding)
    except _DECODE_ERRORS as error:
        raise BadMessage(f"not a submission: {_reason(error)}") from None


def decode_op(frame: Frame) -> AnyOp:
    """Decode the op of an envelope; raises `BadMessage` that carries the submission id."""
    try:
        op = _op_of[frame.encoding](frame.envelope.op)
        if isinstance(op, UserInput) and op.overrides.output_schema is not None:
            _check_is_json(op.overrides.output_schema)
        return op
    except _DECODE_ERRORS as error:
        raise BadMessage(f"not an op: {_reason(error)}", frame.envelope.id) from None


def encode_answer(answer: AnyAnswer, encoding: Encoding = "msgpack") -> bytes:
    """Bytes of an answer."""
    return _to_msgpack(answer) if encoding == "msgpack" else _to_json(answer)


def decode_answer(data: bytes) -> AnyAnswer:
    """Decode an answer in either encoding; raises `BadMessage`."""
    try:
        return _answer_of[encoding_of(data)](data)
    except _DECODE_ERRORS as error:
        raise BadMessage(f"not an answer: {_reason(error)}") from None


def encode_event(event: Event) -> bytes:
    """The msgpack bytes of an event: what the log keeps and what is published."""
    return _to_msgpack(event)


def decode_event(data: bytes) -> Event:
    """Decode the msgpack bytes of one event; raises `BadMessage`."""
    try:
        return _event_of(data)
    except _DECODE_ERRORS as error:
        raise BadMessage(f"not an event: {_reason(error)}") from None


def encode_publication(topic: str, event: bytes) -> bytes:
    """A publication: the topic, a NUL byte, the encoded event."""
    return topic.encode() + TOPIC_END + event


def decode_publication(data: bytes) -> tuple[str, Event]:
    """Split a publication into its topic and event; raises `BadMessage`."""
    topic, end, body = data.partition(TOPIC_END)
    if not end:
        raise BadMessage("not a publication: no NUL byte after the topic")
    return topic.decode(errors="replace"), decode_event(body)


def _check_is_json(value: dict[str, Any]) -> None:
    """Refuse what one encoding can say and the other can't: huge integers, NaN, bytes, odd keys.

    It goes into an event; one that could not be encoded would be the end of the session.
    """
    _to_msgpack(value)
    if msgspec.json.decode(_to_json(value)) != value:
        raise ValueError("`output_schema` holds what JSON can't say")


def _reason(error: BaseException) -> str:
    match error:
        case RecursionError():
            return "nested too deeply"
        case MemoryError():
            return "too large"
        case UnicodeDecodeError():
            return "text that is not UTF-8"
        case _:
            return str(error)
