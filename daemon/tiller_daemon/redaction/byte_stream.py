"""Redacts keys from programs' output, even if a key is split over several reads. Pure.

Only the literal key is searched for, because a program, unlike a server, rarely escapes its output.
"""

from collections.abc import Iterable
from typing import Final

SECRET_PLACEHOLDER: Final = "[secret]"  # noqa: S105
"""Replaces a key in any text."""


class ByteRedactor:
    """Redacts `secrets` from a stream of bytes."""

    def __init__(self, secrets: Iterable[str]) -> None:
        encoded = {secret.encode() for secret in secrets if secret}
        self._secrets: Final = sorted(encoded, key=len, reverse=True)
        self._pending = b""

    def feed(self, piece: bytes) -> bytes:
        """Take the next bytes and return those that can be shown now.

        Bytes at the end that may be the start of a secret are delayed.
        """
        data = self._pending + piece
        for secret in self._secrets:
            data = data.replace(secret, SECRET_PLACEHOLDER.encode())
        end = len(data) - max((_begun(secret, data) for secret in self._secrets), default=0)
        self._pending = data[end:]
        return data[:end]

    def end(self) -> bytes:
        """Return the delayed bytes at the end of the stream."""
        rest, self._pending = self._pending, b""
        return rest


def _begun(secret: bytes, data: bytes) -> int:
    """Return the number of bytes at the end of `data` that are the start of `secret`."""
    longest = min(len(secret) - 1, len(data))
    return next((n for n in range(longest, 0, -1) if data.endswith(secret[:n])), 0)
