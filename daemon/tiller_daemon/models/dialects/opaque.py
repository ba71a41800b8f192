"""What a provider wants back unchanged, marked with where it came from. Pure.

`Reasoning.opaque` of every adapter is sealed here: a first line names the wire, the address and the
model, and behind it stands what that wire keeps, in a form of its own. Only a request over the same
wire to the same model at the same address gets it back: another one would refuse it, for ever, as
it stays in history.
"""

from msgspec import Struct


class Origin(Struct, frozen=True):
    """Where something opaque came from; `api` is the configuration's `api`."""

    api: str
    base_url: str
    model: str

    def seal(self, content: str) -> str:
        """`content` as an item's `opaque`."""
        return self._head + content

    def unseal(self, opaque: str) -> str | None:
        """What was sealed; None if it came from elsewhere."""
        return opaque[len(self._head) :] if opaque.startswith(self._head) else None

    @property
    def _head(self) -> str:
        return f"{self.api} {self.base_url} {self.model}\n"
