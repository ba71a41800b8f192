"""Exports the protocol as JSON Schema: one document with every message under `$defs`."""

from typing import Any

import msgspec

from tiller_protocol import PROTOCOL_VERSION
from tiller_protocol.answers import AnyAnswer
from tiller_protocol.events import Event
from tiller_protocol.lending import FileWanted
from tiller_protocol.ops import Submission
from tiller_protocol.rpc import RpcInput, RpcOutput
from tiller_protocol.snapshot import Snapshot


def json_schema() -> dict[str, Any]:
    """Make the JSON Schema (2020-12) of submissions, answers, publications and the snapshot.

    `$defs` also has the lines of `tiller rpc`, which are not messages on the sockets.
    """
    roots = (Submission, AnyAnswer, Event, FileWanted, Snapshot, RpcInput, RpcOutput)
    refs, definitions = msgspec.json.schema_components(roots, ref_template="#/$defs/{name}")
    *messages, _input, _output = refs
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tiller protocol",
        "version": PROTOCOL_VERSION,
        "anyOf": messages,
        "$defs": definitions,
    }
