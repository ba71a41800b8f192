"""Taking keys out of what a program prints, also when one comes in two pieces (G13). Pure."""

from collections.abc import Iterable
from typing import Final

SECRET_PLACEHOLDER: Final = "[secret]"  # noqa: S105
"""What stands for a key in what a tool says."""


class ByteRedactor:
    """Takes `secrets` out of a stream of bytes, piece by piece."""

    def __init__(self, secrets: Iterable[str]) -> None:
        encoded = {secret.encode() for secret in secrets if secret}
        self._secrets: Final = sorted(encoded, key=len, reverse=True)
        self._pending = b""

    def take(self, piece: bytes) -> bytes:
        """Return what can be shown by now; what may be the beginning of a secret is held back."""
        data = self._pending + piece
        for secret in self._secrets:
            data = data.replace(secret, SECRET_PLACEHOLDER.encode())
        end = len(data) - max((_begun(secret, data) for secret in self._secrets), default=0)
        self._pending = data[end:]
        return data[:end]

    def rest(self) -> bytes:
        """Return what was held back, when nothing comes any more."""
        rest, self._pending = self._pending, b""
        return rest


def _begun(secret: bytes, data: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of `secret`."""
    longest = min(len(secret) - 1, len(data))
    return next((n for n in range(longest, 0, -1) if data.endswith(secret[:n])), 0)
