"""Redacts secrets from the output of tools and programs, even if it comes in pieces. Pure.

These are keys, and the passwords in URLs (`urls`). Only the literal key is searched for, because a
program, unlike a server, rarely escapes its output.
"""

from collections.abc import Iterable
from typing import Final

from tiller_daemon.redaction.urls import SECRET_PLACEHOLDER, undecided_at, without_url_secrets

_CONTEXT_BYTES: Final = 5
r"""The bytes before a name and password in a URL: `:\/\/`."""


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a complete text without the literal `secrets`, and without passwords in URLs."""
    for secret in secrets:
        text = text.replace(secret, SECRET_PLACEHOLDER)
    return without_url_secrets(text)


class ByteRedactor:
    """Redacts `secrets`, and passwords in URLs, from a stream of bytes."""

    def __init__(self, secrets: Iterable[str]) -> None:
        encoded = {secret.encode() for secret in secrets if secret}
        self._secrets: Final = sorted(encoded, key=len, reverse=True)
        self._context = b""
        self._pending = b""

    def feed(self, piece: bytes) -> bytes:
        """Take the next bytes and return those that can be shown now.

        Bytes at the end that may be the start of a secret are delayed.
        """
        data = self._pending + piece
        for secret in self._secrets:
            data = data.replace(secret, SECRET_PLACEHOLDER.encode())
        begun = max((_begun(secret, data) for secret in self._secrets), default=0)
        # Latin-1 has a character for each byte.
        text = (self._context + data).decode("latin-1")
        end = min(len(text) - begun, undecided_at(text))
        shown = without_url_secrets(text[:end])[len(self._context) :]
        self._context = text[max(end - _CONTEXT_BYTES, 0) : end].encode("latin-1")
        self._pending = text[end:].encode("latin-1")
        return shown.encode("latin-1")

    def end(self) -> bytes:
        """Return the delayed bytes at the end of the stream."""
        rest = (self._context + self._pending).decode("latin-1")
        shown = without_url_secrets(rest)[len(self._context) :]
        self._context, self._pending = b"", b""
        return shown.encode("latin-1")


def _begun(secret: bytes, data: bytes) -> int:
    """Return the number of bytes at the end of `data` that are the start of `secret`."""
    longest = min(len(secret) - 1, len(data))
    return next((n for n in range(longest, 0, -1) if data.endswith(secret[:n])), 0)
