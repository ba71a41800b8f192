"""Arguments of forms that models send by mistake are read as they were meant."""

from typing import Any

import msgspec
import pytest

from support.each import each
from tiller_daemon.models.dialects.rendering import usable_arguments
from tiller_daemon.session.calls.arguments import BadArguments, decode_arguments
from tiller_daemon.tools.base import Tool, nothing_required


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    done: bool = False


class Arguments(msgspec.Struct, forbid_unknown_fields=True):
    command: str
    timeout_s: float = 60.0
    lines: int | None = None
    terminal: bool = False
    entries: list[Entry] = []
    text: str = ""
    either: int | str = 0


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string"},
        "timeout_s": {"type": "number"},
        "lines": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "terminal": {"type": "boolean"},
        "entries": {
            "anyOf": [
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"text": {"type": "string"}, "done": {"type": "boolean"}},
                        "required": ["text"],
                    },
                },
                {"type": "null"},
            ]
        },
        "text": {"type": "string"},
        "either": {"type": ["integer", "string"]},
        "any": {},
        "level": {"enum": [1, 2]},
    },
    "required": ["command"],
    "additionalProperties": False,
}


async def never_run(*_: object) -> Any:
    raise AssertionError


def tool(arguments: type[msgspec.Struct] | dict[str, Any]) -> Tool:
    return Tool("t", "", arguments, "read", 1.0, nothing_required, never_run)


def decoded(arguments: type[msgspec.Struct] | dict[str, Any], text: str) -> dict[str, Any]:
    return msgspec.to_builtins(decode_arguments(tool(arguments), text))


MENDED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"timeout_s": None}, {}),
    ({"terminal": None, "entries": [{"text": "a", "done": None}]}, {"entries": [{"text": "a"}]}),
    ({"timeout_s": "20"}, {"timeout_s": 20}),
    ({"timeout_s": "2.5"}, {"timeout_s": 2.5}),
    ({"lines": "7"}, {"lines": 7}),
    ({"terminal": "false"}, {"terminal": False}),
    ({"entries": '[{"text": "a", "done": "true"}]'}, {"entries": [{"text": "a", "done": True}]}),
    ({"entries": ['{"text": "a"}']}, {"entries": [{"text": "a"}]}),
    # Text stays text where the schema permits text.
    (
        {"text": "20", "either": "5", "timeout_s": "1"},
        {"text": "20", "either": "5", "timeout_s": 1},
    ),
]


@each("arguments", [Arguments, SCHEMA])
@each(("given", "meant"), MENDED)
def test_what_was_meant_is_read(arguments: Any, given: Any, meant: Any) -> None:
    whole = {"command": "true", **given}
    expected = decoded(arguments, msgspec.json.encode({"command": "true", **meant}).decode())
    text = msgspec.json.encode(whole).decode()
    assert decoded(arguments, text) == expected
    # The whole arguments may come as text, too.
    assert decoded(arguments, msgspec.json.encode(text).decode()) == expected


def test_an_enumeration_and_an_unknown_type_say_what_is_meant() -> None:
    given = '{"command": "x", "level": "2", "any": null}'
    assert decoded(SCHEMA, given) == {"command": "x", "level": 2, "any": None}


@each("arguments", [Arguments, SCHEMA])
@each(
    "text",
    [
        '{"command": null}',
        '{"command": "x", "timeout_s": "soon"}',
        '{"command": "x", "lines": "2.5"}',
        '{"command": "x", "terminal": "yes"}',
        '{"command": "x", "entries": "{}"}',
        '{"command": "x", "unknown": null}',
        '"[1]"',
        '"',
        "[]",
    ],
)
def test_what_is_not_clear_is_refused_as_it_came(arguments: Any, text: str) -> None:
    with pytest.raises(BadArguments, match="Invalid arguments for t"):
        decoded(arguments, text)


def test_whole_arguments_as_text_stay_in_the_history() -> None:
    assert usable_arguments('"{\\"a\\": 1}"') == '{"a": 1}'
    assert usable_arguments('"[1]"') == usable_arguments('"\\"{}\\""') == "{}"
