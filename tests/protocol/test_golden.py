"""The wire format, byte by byte: old messages are encoded and decoded as before, for ever.

After an intended change: `TEST_GOLDEN=write scripts/test tests/protocol/test_golden.py`,
and read the diff. A removed or changed line breaks other people's frontends.
"""

import json
import os
from pathlib import Path

import jsonschema
import msgspec

from protocol.messages import examples
from support.each import each
from tiller_protocol.answers import AnyAnswer
from tiller_protocol.codec import decode_answer, decode_envelope, decode_event, decode_op
from tiller_protocol.events import Event
from tiller_protocol.ops import Submission
from tiller_protocol.schema import json_schema
from tiller_protocol.snapshot import Snapshot

GOLDEN = Path(__file__).with_name("golden.json")
EXAMPLES = dict(examples())
SCHEMA = jsonschema.Draft202012Validator(json_schema())


def encoded(message: msgspec.Struct) -> dict[str, object]:
    return {
        "msgpack": msgspec.msgpack.encode(message).hex(),
        "json": json.loads(msgspec.json.encode(message)),
    }


def test_the_wire_is_what_it_was():
    made = {name: encoded(message) for name, message in EXAMPLES.items()}
    if os.environ.get("TEST_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    kept = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert sorted(made) == sorted(kept)
    for name in kept:
        assert made[name] == kept[name], name


@each("name", EXAMPLES)
def test_what_was_encoded_once_is_understood(name):
    message = EXAMPLES[name]
    data = bytes.fromhex(json.loads(GOLDEN.read_text(encoding="utf-8"))[name]["msgpack"])
    match message:
        case Submission():
            assert decode_op(decode_envelope(data)) == message.op
            assert decode_op(decode_envelope(msgspec.json.encode(message))) == message.op
        case Event():
            assert decode_event(data) == message
        case Snapshot():
            assert msgspec.msgpack.decode(data, type=Snapshot) == message
        case _:
            assert decode_answer(data) == message
            assert msgspec.json.decode(msgspec.json.encode(message), type=AnyAnswer) == message


@each("name", EXAMPLES)
def test_the_exported_schema_describes_every_message(name):
    SCHEMA.validate(json.loads(msgspec.json.encode(EXAMPLES[name])))


def test_the_exported_schema_refuses_what_is_no_message():
    assert not SCHEMA.is_valid({"id": "x", "op": {"type": "no_such_op"}})
    assert not SCHEMA.is_valid({"seq": "1"})
