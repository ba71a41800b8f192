"""Exports the protocol as JSON Schema, with all messages under `$defs`, and as TypeScript types."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from tiller_protocol import PROTOCOL_VERSION
from tiller_protocol.answers import AnyAnswer
from tiller_protocol.events import Event
from tiller_protocol.lending import FileWanted
from tiller_protocol.ops import Submission
from tiller_protocol.rpc import RpcInput, RpcOutput
from tiller_protocol.snapshot import Snapshot

UNIONS = """\
/** An op: what a frontend asks of the daemon. */
export type AnyOp = Submission["op"];
/** What an accepted op may return. */
export type AnyResult = NonNullable<Accepted["result"]>;
/** The answer to a submission. */
export type AnyAnswer = Accepted | Rejected;
/** What an event reports. */
export type AnyBody = Event["body"];
/** An entry of a session's history. */
export type Item = NonNullable<Snapshot["items"]>[number];
"""
"""Names for the unions, which have no names in the schema."""


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


def typescript() -> str:
    """Make a module with an interface for each struct in the schema."""
    schema = json_schema()
    parts = [
        "/** The protocol of tiller; made by `tiller schema --typescript`. */\n",
        f"export const PROTOCOL_VERSION = {schema['version']};\n",
        UNIONS,
        *(_interface(name, struct) for name, struct in schema["$defs"].items()),
    ]
    return "\n".join(parts)


def _interface(name: str, struct: dict[str, Any]) -> str:
    required = struct.get("required", [])
    lines = [*_comment(struct, ""), f"export interface {name} {{"]
    for field, kind in struct["properties"].items():
        lines += _comment(kind, "  ")
        lines.append(f"  {field}{'' if field in required else '?'}: {_type_of(kind)};")
    return "\n".join([*lines, "}"]) + "\n"


def _comment(described: dict[str, Any], indent: str) -> Iterator[str]:
    if text := described.get("description", "").replace("*/", "* /"):
        yield f"{indent}/** {' '.join(text.split())} */"


def _type_of(kind: dict[str, Any]) -> str:
    """The TypeScript type for a schema; all JSON numbers are `number`."""
    match kind:
        case {"$ref": ref}:
            return ref.rpartition("/")[2]
        case {"enum": values}:
            return " | ".join(map(json.dumps, values))
        case {"anyOf": kinds}:
            return " | ".join(dict.fromkeys(map(_type_of, kinds)))
        case {"type": "array", "items": items}:
            return f"Array<{_type_of(items)}>"
        case {"type": "object"}:
            return f"Record<string, {_type_of(kind.get('additionalProperties', {}))}>"
        case {"type": "integer"}:
            return "number"
        case {"type": ("string" | "number" | "boolean" | "null") as name}:
            return name
        case _:
            return "unknown"
