"""The schema of the rules that say what a user who looks elsewhere is told, and where."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from tiller_daemon.config.constraints import FieldError, Url
from tiller_daemon.config.model_schema import KEY_FIELDS, Command, KeyPlaces

NotifyMoment = Literal["needs_answer", "ended", "failed", "limit"]
"""A request is open; a turn has completed; it has failed; it has reached a limit."""

NotifyTarget = Literal["desktop", "ntfy", "slack", "webhook", "apprise", "command"]

DEFAULT_AFTER_S = 30.0
"""How long nobody must have looked. People read a long answer, or look up a thing, in that time."""


class Notify(KeyPlaces, frozen=True, forbid_unknown_fields=True):
    """A rule for messages to a user who looks at no frontend.

    The key is a token for the server of `ntfy` and `webhook`, and the whole address of `slack` and
    `apprise`, which nobody else may know.
    """

    to: NotifyTarget
    """The kind of the target."""
    on: tuple[NotifyMoment, ...] = ("needs_answer", "ended", "failed", "limit")
    """The moments that are told."""
    url: Url | None = None
    """The address of the target; its last part is the topic of `ntfy`."""
    command: Command | None = None
    """The program and its arguments, run without a shell."""
    after_s: Annotated[float, Meta(ge=0, le=86_400)] = DEFAULT_AFTER_S
    """How long nobody must have looked, in seconds, and how long a turn must take so that its
    completion is told."""

    def __post_init__(self) -> None:
        super().__post_init__()
        has_key = any(getattr(self, field) for field in KEY_FIELDS)
        if (self.to == "command") != (self.command is not None):
            raise FieldError("expected `command` for the target `command`, and for no other")
        if self.command and "/" in self.command[0] and not self.command[0].startswith("/"):
            raise FieldError("expected the name of a program, or its absolute path", "command")
        if self.url and self.to not in ("ntfy", "slack", "webhook"):
            raise FieldError("only the targets `ntfy`, `slack` and `webhook` have a `url`")
        if has_key and self.to in ("desktop", "command"):
            raise FieldError("a desktop or a command needs no key")
        if self.to in ("ntfy", "webhook") and not self.url:
            raise FieldError("expected `url`, the address of the target")
        if self.to == "ntfy" and not urlsplit(self.url or "").path.strip("/"):
            raise FieldError("expected an address that ends with the topic", "url")
        if self.to == "slack" and bool(self.url) == has_key:
            raise FieldError("expected the address in `url` or, as it is secret, by a key")
        if self.to == "apprise" and not has_key:
            raise FieldError("expected the place of the address, such as `api_key_file`")
