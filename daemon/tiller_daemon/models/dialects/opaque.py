"""Seals data that a provider wants back unchanged, together with its origin. Pure.

Every adapter seals `Reasoning.opaque` here. The first line names the API, the base URL and the
model; the adapter's own data follows. Only a request with the same origin gets the data back. Any
other server would refuse the data and, since it stays in the history, every later request.
"""

from msgspec import Struct


class Origin(Struct, frozen=True):
    """The source of opaque data; `api` is the provider's setting of that name."""

    api: str
    base_url: str
    model: str

    def seal(self, content: str) -> str:
        """Return the `opaque` of an item for `content`."""
        return self._head + content

    def unseal(self, opaque: str) -> str | None:
        """Return the sealed content, or None if it has another origin."""
        return opaque[len(self._head) :] if opaque.startswith(self._head) else None

    @property
    def _head(self) -> str:
        return f"{self.api} {self.base_url} {self.model}\n"
