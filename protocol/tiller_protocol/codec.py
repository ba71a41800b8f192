"""Encodes and decodes messages; input may be hostile.

The wire format is msgpack. The ops socket also accepts JSON, and then answers in JSON. Every
failure to decode raises `BadMessage`. The transport limits the size of messages.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from tiller_protocol.answers import AnyAnswer
from tiller_protocol.errors import BadMessage
from tiller_protocol.events import Event
from tiller_protocol.ids import IdText
from tiller_protocol.lending import FileWanted
from tiller_protocol.ops import AnyOp, Submission, UserInput

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""Largest message that either side accepts; the transport rejects larger ones unread."""

REPLAY_BYTES_MAX = 1024 * 1024
"""Largest answer to `replay`, unless a single event is larger."""

INPUT_BYTES_MAX = 8 * 1024 * 1024
"""Largest user input: half a message, which leaves enough room for the rest of the message."""

TOPIC_END = b"\0"

Encoding = Literal["msgpack", "json"]

_Message = TypeVar("_Message")

_to_msgpack = msgspec.msgpack.Encoder().encode
_to_json = msgspec.json.Encoder().encode


class Envelope(msgspec.Struct, frozen=True):
    """A submission whose op is not decoded until the token has been checked."""

    id: IdText
    op: msgspec.Raw
    client: str = ""
    token: str = ""


class Frame(NamedTuple):
    """An envelope, and its encoding, which the answer will have, too."""

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
_file_wanted_of = msgspec.msgpack.Decoder(FileWanted).decode

_DECODE_ERRORS = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    RecursionError,
    MemoryError,
    OverflowError,
    TypeError,
    ValueError,
)
"""msgspec's own error, and others that it raises on hostile input (deep nesting, bad UTF-8, …)."""


def encoding_of(data: bytes | memoryview) -> Encoding:
    """The encoding of a message; JSON begins with `{` or white space."""
    return "json" if data[:1] in (b"{", b" ", b"\n", b"\t", b"\r") else "msgpack"


def encode_submission(submission: Submission, encoding: Encoding = "msgpack") -> bytes:
    """Encode a submission."""
    return _to_msgpack(submission) if encoding == "msgpack" else _to_json(submission)


def decode_envelope(data: bytes | memoryview) -> Frame:
    """Decode a submission except its op, which remains a view of `data`; raises `BadMessage`."""
    encoding = encoding_of(data)
    return Frame(_decoded(_envelope_of[encoding], data, "a submission"), encoding)


def decode_op(frame: Frame) -> AnyOp:
    """Decode the op of an envelope; raises `BadMessage` with the submission id."""
    try:
        op = _op_of[frame.encoding](frame.envelope.op)
        if isinstance(op, UserInput) and op.overrides.output_schema is not None:
            _check_is_json(op.overrides.output_schema)
        return op
    except _DECODE_ERRORS as error:
        raise BadMessage(f"not an op: {_reason(error)}", frame.envelope.id) from None


def encode_answer(answer: AnyAnswer, encoding: Encoding = "msgpack") -> bytes:
    """Encode an answer."""
    return _to_msgpack(answer) if encoding == "msgpack" else _to_json(answer)


def decode_answer(data: bytes) -> AnyAnswer:
    """Decode an answer in either encoding; raises `BadMessage`."""
    return _decoded(_answer_of[encoding_of(data)], data, "an answer")


def encode_event(event: Event) -> bytes:
    """Encode an event as msgpack, as it is stored in the log and published."""
    return _to_msgpack(event)


def decode_event(data: bytes) -> Event:
    """Decode one event; raises `BadMessage`."""
    return _decoded(_event_of, data, "an event")


def encode_file_wanted(wanted: FileWanted) -> bytes:
    """Encode a question to a lender as msgpack, as it is published."""
    return _to_msgpack(wanted)


def decode_file_wanted(data: bytes) -> FileWanted:
    """Decode a question to a lender; raises `BadMessage`."""
    return _decoded(_file_wanted_of, data, "a question about a file")


def encode_publication(topic: str, event: bytes) -> bytes:
    """Make a publication: the topic, a NUL byte, and the encoded event."""
    return topic.encode() + TOPIC_END + event


def decode_publication(data: bytes) -> tuple[str, Event]:
    """Return the topic and the event of a publication; raises `BadMessage`."""
    topic, end, body = data.partition(TOPIC_END)
    if not end:
        raise BadMessage("not a publication: no NUL byte after the topic")
    return topic.decode(errors="replace"), decode_event(body)


def _decoded(
    decode: Callable[[bytes | memoryview], _Message], data: bytes | memoryview, what: str
) -> _Message:
    try:
        return decode(data)
    except _DECODE_ERRORS as error:
        raise BadMessage(f"not {what}: {_reason(error)}") from None


def _check_is_json(value: dict[str, Any]) -> None:
    """Reject values that only one of the encodings supports: huge integers, NaN, bytes, odd keys.

    The value becomes part of an event, and a session can't go on if an event can't be encoded.
    """
    _to_msgpack(value)
    if msgspec.json.decode(_to_json(value)) != value:
        raise ValueError("`output_schema` contains a value that JSON can't represent")


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
