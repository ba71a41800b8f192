"""Descriptions of fields, which `tiller schema` prints."""

from msgspec import Meta


def doc(description: str) -> Meta:
    """Describe a field; for use in `Annotated`.

    A description costs nothing per message: msgspec ignores it when it encodes and decodes.
    """
    return Meta(description=description)
