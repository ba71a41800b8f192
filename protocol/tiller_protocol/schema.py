"""Exports the protocol as JSON Schema: one document with every message under `$defs`."""

from typing import Any

import msgspec

from tiller_protocol import PROTOCOL_VERSION
from tiller_protocol.answers import AnyAnswer
from tiller_protocol.events import Event
from tiller_protocol.ops import Submission
from tiller_protocol.snapshot import Snapshot


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of submissions, answers, events and the snapshot."""
    roots = (Submission, AnyAnswer, Event, Snapshot)
    refs, definitions = msgspec.json.schema_components(roots, ref_template="#/$defs/{name}")
    submission, answer, event, snapshot = refs
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tiller protocol",
        "version": PROTOCOL_VERSION,
        "anyOf": [submission, answer, event, snapshot],
        "$defs": definitions,
    }
