"""Elicitation: a form becomes questions, and answers become its values."""

from typing import Any

import mcp_types as types
import pytest

from support.each import each
from tiller_daemon.mcp.elicitation import ask_user
from tiller_daemon.tools.base import ToolFailure, UserAnswer

SIZES = {"type": "string", "enum": ["s", "l"], "enumNames": ["small", "large"]}
COLOURS = {
    "type": "string",
    "oneOf": [{"const": "r", "title": "red"}, {"const": "g", "title": "green"}],
}
TAGS = {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "minItems": 1}
AMOUNT = {
    "type": "integer",
    "title": "Amount",
    "description": "how many",
    "minimum": 1,
    "maximum": 9,
}


class User:
    """Says these things, one after the other."""

    def __init__(self, *words: str | None) -> None:
        self.words = list(words)
        self.questions: list[tuple[str, tuple[str, ...]]] = []

    async def ask(self, text: str, choices: tuple[str, ...]) -> UserAnswer:
        self.questions.append((text, choices))
        return UserAnswer(self.words.pop(0))


async def form(user: User, *required: str, **properties: dict[str, Any]) -> types.ElicitResult:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    params = types.ElicitRequestFormParams(message="What shall it be?", requested_schema=schema)
    return await ask_user("shop", params, user.ask)


@each(
    ("schema", "expected", "value"),
    [
        ({"type": "string"}, "some words", "some words"),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "no", False),
        (AMOUNT, "7", 7),
        ({"type": "number"}, "2.5", 2.5),
        (SIZES, "Large", "l"),
        (SIZES, "s", "s"),
        (COLOURS, "Red", "r"),
        (COLOURS, "green", "g"),
        (TAGS, "a, C", ["a", "c"]),
        (TAGS, "a, c,", ["a", "c"]),
        ({"type": "string", "default": "plain"}, "", "plain"),
        ({"type": "boolean", "default": False}, "", False),
    ],
)
async def test_answers_become_values(schema, expected, value):
    answer = await form(User(expected), "x", x=schema)
    assert (answer.action, answer.content) == ("accept", {"x": value})


async def test_a_form_is_asked_field_by_field_with_choices():
    user = User("small", "3", "", "yes")
    answer = await form(
        user,
        "size",
        "amount",
        "gift",
        size=SIZES,
        amount=AMOUNT,
        note={"type": "string"},
        gift={"type": "boolean"},
    )
    assert answer.content == {"size": "s", "amount": 3, "gift": True}
    assert user.questions == [
        ("The MCP server shop asks: What shall it be?\nsize", ("small", "large")),
        ("The MCP server shop asks: What shall it be?\nAmount: how many", ()),
        ("The MCP server shop asks: What shall it be?\nnote (may be empty)", ()),
        ("The MCP server shop asks: What shall it be?\ngift", ("yes", "no")),
    ]


@each(
    ("schema", "expected", "why"),
    [
        (AMOUNT, "many", "That was not understood: invalid literal"),
        (AMOUNT, "12", "That is not valid: 12 is greater than the maximum of 9"),
        (SIZES, "huge", "That was not understood: answer with one of small, large"),
        ({"type": "boolean"}, "perhaps", "answer yes or no"),
        (TAGS, "", "That is not valid: [] "),
        (TAGS, ",,", "That was not understood: a value is missing before a comma"),
        (TAGS, "a,,c", "That was not understood: a value is missing before a comma"),
        ({"type": "string", "minLength": 3}, "", "That is not valid: '' is too short"),
    ],
)
async def test_an_invalid_answer_is_asked_for_again_with_the_reason(schema, expected, why):
    user = User(expected, expected, expected)
    assert (await form(user, "x", x=schema)).action == "decline"
    assert why not in user.questions[0][0]
    assert why in user.questions[1][0]
    assert len(user.questions) == 3


async def test_declining_one_field_declines_the_form():
    answer = await form(User("small", None), "size", "amount", size=SIZES, amount=AMOUNT)
    assert (answer.action, answer.content) == ("decline", None)


@pytest.mark.parametrize(
    ("expected", "action"),
    [
        ("accept", "accept"),
        ("Yes", "accept"),
        ("decline", "decline"),
        ("not now", "decline"),
        ("n", "decline"),
        ("wait, what is it?", "decline"),
        ("", "decline"),
    ],
)
async def test_a_form_without_fields_and_a_url_are_confirmed(expected, action):
    assert (await form(User(expected))).action == action
    params = types.ElicitRequestURLParams(message="Sign in.", url="https://e.invalid/x")
    user = User(expected)
    answer = await ask_user("shop", params, user.ask)
    assert (answer.action, answer.content) == (action, None)
    assert user.questions == [
        (
            "The MCP server shop asks: Sign in.\nIt wants you to open https://e.invalid/x",
            ("accept", "decline"),
        )
    ]


async def test_without_a_user_a_form_is_declined():
    async def nobody(text: str, choices: tuple[str, ...]) -> UserAnswer:
        raise ToolFailure("Nobody is there.")

    params = types.ElicitRequestFormParams(message="?", requested_schema={"type": "object"})
    assert (await ask_user("shop", params, nobody)).action == "decline"
