"""Encrypts what goes through the broker with the team's key.

XChaCha20-Poly1305 of libsodium, by PyNaCl. The subject is authenticated with the content, so that a
broker can't deliver a message as another one. Subjects and headers stay readable: names of hosts,
ids of sessions, numbers of events, sizes and times.
"""

import base64
import binascii
import stat
from abc import ABC, abstractmethod
from pathlib import Path

from nacl.exceptions import CryptoError
from nacl.secret import Aead
from nacl.utils import random

from tiller_client.errors import TillerError, UsageError

FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Sealing(ABC):
    """Encrypts and decrypts the content of messages."""

    @abstractmethod
    def seal(self, place: str, data: bytes) -> bytes:
        """Encrypt the content of a message to the subject or key `place`."""

    @abstractmethod
    def open(self, place: str, data: bytes) -> bytes:
        """Decrypt; raises `NotOurs`."""


class NotOurs(TillerError):
    """A message is not encrypted with the team's key, or not for this place."""


class Plain(Sealing):
    """Without a key: the broker can read everything."""

    def seal(self, place: str, data: bytes) -> bytes:  # noqa: ARG002
        """Return the content."""
        return data

    def open(self, place: str, data: bytes) -> bytes:  # noqa: ARG002
        """Return the content."""
        return data


class Sealed(Sealing):
    """With the team's key."""

    def __init__(self, key: bytes) -> None:
        """`key` has `Aead.KEY_SIZE` bytes."""
        self._aead = Aead(key)

    def seal(self, place: str, data: bytes) -> bytes:
        """Encrypt with a random nonce, which comes first."""
        return bytes(self._aead.encrypt(data, place.encode()))

    def open(self, place: str, data: bytes) -> bytes:
        """Decrypt; raises `NotOurs`."""
        try:
            return self._aead.decrypt(data, place.encode())
        except (CryptoError, ValueError):
            raise NotOurs(
                f"a message to {place} is not encrypted with this team's key; give all hosts the "
                "same key file"
            ) from None


def sealing_of(key_file: str) -> Sealing:
    """Read the team's key, if there is one; raises `UsageError`."""
    if not key_file:
        return Plain()
    path = Path(key_file)
    try:
        if path.stat().st_mode & FOR_OTHERS:
            raise UsageError(f"others can read the team's key; run: chmod 600 {path}")
        key = base64.b64decode(path.read_text("ascii").strip(), validate=True)
    except OSError as error:
        raise UsageError(f"the team's key {path} can't be read: {error.strerror}") from None
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != Aead.KEY_SIZE:
        raise UsageError(f"{path} has no key of a team; make one with: tiller fleet key {path}")
    return Sealed(key)


def make_key(path: Path) -> None:
    """Write a new key to a file that does not exist yet; raises `OSError`."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(base64.b64encode(random(Aead.KEY_SIZE)).decode() + "\n", "ascii")
