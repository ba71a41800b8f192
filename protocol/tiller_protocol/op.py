"""The bases of all ops and results. `ops` lists the ops, and `answers` the results."""

from typing import Annotated

from msgspec import Struct

from tiller_protocol.doc import doc
from tiller_protocol.ids import IdText

SessionRef = Annotated[IdText, doc("Id of the session.")]


class Op(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of all ops; the tag is the field `type`."""


class Result(Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Base of all results; the tag is the field `type`."""
