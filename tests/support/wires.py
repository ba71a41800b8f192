"""Checks one model request on every wire by that wire's rules (G4)."""

from msgspec.structs import replace

from support.dialect import check_chat_body
from support.dialect_anthropic import check_messages_body
from support.dialect_responses import check_responses_body
from tiller_daemon.models.base import ModelRequest
from tiller_daemon.models.dialects.anthropic_messages import request as anthropic_messages_request
from tiller_daemon.models.dialects.openai_chat import request as openai_chat_request
from tiller_daemon.models.dialects.openai_responses import request as openai_responses_request

CLAUDES = ("claude-haiku-4-5", "claude-opus-4-8")
"""A model that thinks by a budget, and one that decides by itself, as their requests differ."""


def check_on_every_wire(request: ModelRequest) -> None:
    """Raise `AssertionError` unless every strict server would take `request`."""
    check_chat_body(openai_chat_request.build_body(request))
    check_responses_body(openai_responses_request.build_body(request))
    for model in (request.model, *CLAUDES):
        built = anthropic_messages_request.build_body(replace(request, model=model))
        check_messages_body(built.body)
