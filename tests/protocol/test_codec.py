"""The codec with hostile bytes: it decodes them or raises `BadMessage`."""

import contextlib
import os
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages import examples, random_message
from support.each import each
from tiller_protocol.answers import AnyAnswer
from tiller_protocol.codec import (
    decode_answer,
    decode_envelope,
    decode_event,
    decode_op,
    decode_publication,
    encode_answer,
    encode_event,
    encode_publication,
    encode_submission,
)
from tiller_protocol.errors import BadMessage
from tiller_protocol.events import Event
from tiller_protocol.ops import Shell, Submission

SEED = int(os.environ.get("TEST_SEED", "20261121"))
FRAMES = 24_000
EXAMPLES = [message for _, message in examples()]


def understand(data: bytes) -> None:
    """Decode `data` as every kind of message; any error but `BadMessage` is a bug."""
    for decode in (lambda d: decode_op(decode_envelope(d)), decode_answer, decode_event):
        try:
            message = decode(data)
        except BadMessage:
            continue
        msgspec.msgpack.encode(message)
    with contextlib.suppress(BadMessage):
        decode_publication(data)


def test_mutated_frames_raise_bad_message_and_nothing_else():
    frames = [
        encode(m) for m in EXAMPLES for encode in (msgspec.msgpack.encode, msgspec.json.encode)
    ]
    for number in range(FRAMES):
        choose = random.Random(f"{SEED}-{number}")
        data = bytearray(choose.choice(frames))
        for _ in range(choose.randint(1, 4)):
            at = choose.randrange(len(data) + 1)
            match choose.randint(0, 4):
                case 0:
                    data[at : at + 1] = bytes([choose.randrange(256)])
                case 1:
                    del data[at : at + choose.randint(1, 8)]
                case 2:
                    data[at:at] = choose.randbytes(choose.randint(1, 8))
                case 3:
                    data[at:at] = choose.choice(frames)[: choose.randint(1, 200)]
                case _:
                    data[at : at + 1] = choose.choice([b"\xc1", b"\xdf", b"\xcf", b"\xc7", b"\xff"])
        try:
            understand(bytes(data))
        except Exception as error:
            raise AssertionError(f"TEST_SEED={SEED}, frame {number}: {bytes(data)!r}") from error


@given(st.binary(max_size=200))
def test_random_bytes_raise_bad_message_and_nothing_else(data):
    understand(data)
    understand(b"{" + data)


def schema_json(value: bytes) -> bytes:
    return (
        b'{"id":"a","op":{"type":"user_input","session_id":"s","overrides":{"output_schema":{"a":'
        + value
        + b"}}}}"
    )


def schema_msgpack(value: bytes) -> bytes:
    head = b"\x82\xa2id\xa1a\xa2op\x83\xa4type\xaauser_input\xaasession_id\xa1s"
    return head + b"\xa9overrides\x81\xadoutput_schema\x81\xa1a" + value


@each(
    "data",
    [
        b"",
        b"{",
        b"\xc1",
        b"[" * 100_000,
        b'{"id":' + b"[" * 100_000,
        b"\x91" * 100_000,
        b"\x82\xa2id\xa1a\xa2op" + b"\x91" * 100_000,
        b'{"id":"a","op":{"type":"shell","session_id":"s","command":"\xff"}}',
        b'{"id":"a","op":{"type":"shell","session_id":"s","command":"\\ud800"}}',
        b"\x82\xa2id\xa1a\xa2op\x81\xa4type\xa2\xff\xfe",
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b'{"id":"","op":{"type":"daemon_status"}}',
        b'{"id":"' + b"x" * 129 + b'","op":{"type":"daemon_status"}}',
        b'{"id":"a","op":{"type":"no_such_op"}}',
        b'{"id":"a","op":{"type":"daemon_status","colour":"red"}}',
        b'{"id":"a","op":{"session_id":"s"}}',
        b'{"id":"a","op":{"type":"shell","session_id":7,"command":"x"}}',
        b'{"id":"a","op":{"type":"replay","session_id":"s","after":-1}}',
        b'{"id":"a","op":{"type":"replay","session_id":"s","after":1e99}}',
        b'{"id":"a","op":{"type":"hello","name":"x","protocol_version":' + b"9" * 5_000 + b"}}",
        schema_json(b"9" * 40),
        schema_json(b"1e999"),
        schema_json(b"NaN"),
        schema_json(b"[" * 100_000),
        schema_msgpack(b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"),
        schema_msgpack(b"\xd4\x05x"),
        schema_msgpack(b"\xc4\x01x"),
        schema_msgpack(b"\x81\x01\x02"),
        schema_msgpack(b"\xd6\xff\x00\x00\x00\x00"),
    ],
)
@pytest.mark.promise("T11")
def test_hostile_submissions_are_bad_messages(data):
    with pytest.raises(BadMessage):
        decode_op(decode_envelope(data))


def test_a_bad_op_carries_the_id_to_answer_to():
    with pytest.raises(BadMessage) as caught:
        decode_op(decode_envelope(b'{"id":"abc","op":{"type":"no_such_op"}}'))
    assert caught.value.submission_id == "abc"


def test_the_last_of_duplicate_keys_counts_in_both_encodings():
    frame = decode_envelope(b'{"id":"a","id":"b","op":{"type":"daemon_status"}}')
    assert frame.envelope.id == "b"
    twice = b"\x83\xa2id\xa1a\xa2id\xa1b\xa2op\x81\xa4type\xaddaemon_status"
    assert decode_envelope(twice).envelope.id == "b"


def test_events_allow_fields_that_a_newer_daemon_adds():
    event = Event(1, "s", 1.0, EXAMPLES_OF_EVENTS[0].body)
    newer = msgspec.msgpack.decode(encode_event(event))
    newer["later"] = 1
    newer["body"]["later"] = {"x": 1}
    assert decode_event(msgspec.msgpack.encode(newer)) == event


EXAMPLES_OF_EVENTS = [message for message in EXAMPLES if isinstance(message, Event)]


@given(random_message(Submission))
@settings(max_examples=300)
def test_any_submission_survives_both_encodings(submission):
    for encoding in ("msgpack", "json"):
        frame = decode_envelope(encode_submission(submission, encoding))
        assert frame.encoding == encoding
        assert (frame.envelope.id, frame.envelope.token) == (submission.id, submission.token)
        assert decode_op(frame) == submission.op


@given(random_message(Event))
@settings(max_examples=300)
def test_any_event_survives_the_wire_under_its_topic(event):
    assert decode_event(encode_event(event)) == event
    published = encode_publication("daemon", encode_event(event))
    assert decode_publication(published) == ("daemon", event)


@given(random_message(AnyAnswer))
@settings(max_examples=300)
def test_any_answer_survives_both_encodings(answer):
    for encoding in ("msgpack", "json"):
        assert decode_answer(encode_answer(answer, encoding)) == answer


def test_a_blank_before_json_is_still_json():
    data = encode_submission(Submission("a", Shell("s", "ls")), "json")
    assert decode_op(decode_envelope(b"\n  " + data)) == Shell("s", "ls")
