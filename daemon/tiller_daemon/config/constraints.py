"""What values in the configuration must fulfil beyond their types. Pure.

A constraint's text says what is expected. It never contains the value, which may be a secret.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tiller_daemon.config.request_options import RESERVED, Options
from tiller_protocol.places import (
    DESTINATION,
    DESTINATION_EXPECTED,
    HOST_LABEL,
    HOST_LABEL_EXPECTED,
)


class FieldError(ValueError):
    """A struct is invalid because of the value at `key` in it, or as a whole; says why."""

    def __init__(self, problem: str, *key: str | int) -> None:
        super().__init__(problem)
        self.key = key


def expected(text: str, pattern: str | None = None) -> Meta:
    """Constrain a type, for use in `Annotated`; `text` is the message about a value that fails."""
    return Meta(pattern=pattern, extra={"expected": text})


VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*\Z"
VariableName = Annotated[
    str, expected("expected the name of an environment variable, not its value", VARIABLE)
]
ModelName = Annotated[str, expected("expected `provider/model`", r"^[^/]+/(?s:.)")]
ProviderName = Annotated[str, expected("expected a name without slashes", r"^[^/]+\Z")]
ACCOUNT_NAME = r"^[a-z0-9][a-z0-9_-]{0,31}\Z"
AccountName = Annotated[
    str, expected("expected the name of an account, as `tiller accounts` lists it", ACCOUNT_NAME)
]
Extension = Annotated[
    str, expected('expected file name extensions, such as { ".py" = "python" }', "(?s:.)")
]
ServerName = Annotated[
    str,
    # With the tool's name it must fit into the providers' limit of 64 characters.
    expected("expected a name of 1 to 32 letters, digits, `-` and `_`", r"^[A-Za-z0-9_-]{1,32}\Z"),
]
HostLabel = Annotated[str, expected(HOST_LABEL_EXPECTED, HOST_LABEL)]
Destination = Annotated[str, expected(DESTINATION_EXPECTED, DESTINATION)]

_ADDRESS = (
    r"://(?:[^\s/?#@:]+@)?"  # a user without a password
    r"(?:\[[0-9A-Fa-f:.]+\]|[^\s/?#@:.\[\]]+(?:\.[^\s/?#@:.\[\]]+)*\.?)"
    r"(?::(?:[0-5]?\d{1,4}|6[0-5]\d{3}))?(?:[/?#][^\s]*)?"
)
Url = Annotated[
    str,
    expected(
        "expected a URL that begins with http:// or https:// and has no password",
        rf"^(?i:https?){_ADDRESS}\Z",
    ),
]
ProxyUrl = Annotated[
    str,
    expected(
        'expected "" for no proxy, or an address without a password, such as http://host:3128; '
        "an address with a password belongs in the variable HTTPS_PROXY",
        rf"^(?:(?i:https?|socks5h?){_ADDRESS})?\Z",
    ),
]


def check_options(options: Options, *key: str) -> None:
    """Raise `FieldError` unless these are valid JSON without reserved names."""
    for name, value in options.items():
        if name in RESERVED:
            raise FieldError(f"`{name}` is set by the daemon", *key)
        if not _is_json(value):
            problem = f"`{name}` contains a value that JSON can't represent, such as a date"
            raise FieldError(problem, *key)


def check_exclusive(owner: Struct, fields: Iterable[str]) -> None:
    """Raise `FieldError` if more than one of these fields is set."""
    found = [f"`{field}`" for field in fields if getattr(owner, field)]
    if len(found) > 1:
        raise FieldError(f"{' and '.join(found)} exclude each other: keep one")


def _is_json(value: object) -> bool:
    try:
        return msgspec.json.decode(msgspec.json.encode(value)) == value
    except (ValueError, OverflowError):
        return False
