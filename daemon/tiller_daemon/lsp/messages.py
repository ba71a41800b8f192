"""The messages of the language server protocol that tiller uses, as structs. Pure.

Fields that the structs do not name are ignored.
"""

from pathlib import Path
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Raw, Struct

METHOD_NOT_FOUND: Final = -32601
CONTENT_MODIFIED: Final = -32801
SERVER_CANCELLED: Final = -32802

ERROR: Final = 1
"""Severity of an error; 2 is a warning, 3 and 4 are hints."""


class MalformedMessage(Exception):
    """A message can't be decoded. The error text is a sentence about the server: "It sent …"."""


class ResponseError(Struct, frozen=True):
    """Why a request failed."""

    code: int = 0
    message: str = ""


class Incoming(Struct, frozen=True):
    """Any message from a server."""

    id: int | str | None = None
    """Absent in a notification."""
    method: str | None = None
    """Absent in a response."""
    params: Raw = Raw(b"null")
    """The parameters of a request or notification."""
    result: Raw = Raw(b"null")
    """The result in a response."""
    error: ResponseError | None = None
    """Set if the message is a response to a request that failed."""


class Position(Struct, frozen=True):
    """A position in a file; both numbers count from 0."""

    line: int = 0
    character: int = 0


class Range(Struct, frozen=True):
    """A range in a file; only its start is used."""

    start: Position = Position()


class Diagnostic(Struct, frozen=True):
    """A problem that a server found in a file."""

    range: Range
    message: str
    severity: int = ERROR
    code: int | str | None = None


class PublishDiagnosticsParams(Struct, frozen=True):
    """Diagnostics of a file, sent by the server without a request."""

    uri: str
    diagnostics: tuple[Diagnostic, ...]
    version: int | None = None


class DocumentDiagnosticReport(Struct, frozen=True):
    """Diagnostics of a file, sent in response to a request."""

    items: tuple[Diagnostic, ...] = ()


class ServerCapabilities(Struct, frozen=True, rename="camel"):
    """The only capability of a server that tiller reads: whether it answers diagnostic requests."""

    diagnostic_provider: Any = None


class InitializeResult(Struct, frozen=True):
    """The result of `initialize`."""

    capabilities: ServerCapabilities = ServerCapabilities()


class Registration(Struct, frozen=True):
    """A capability that a server registers."""

    method: str


class RegistrationParams(Struct, frozen=True):
    """Capabilities that a server registers after `initialize`."""

    registrations: tuple[Registration, ...] = ()


class ConfigurationItem(Struct, frozen=True):
    """A requested section of the settings; without a name, all settings are requested."""

    section: str | None = None


class ConfigurationParams(Struct, frozen=True):
    """The sections of the settings that a server requests."""

    items: tuple[ConfigurationItem, ...] = ()


CLIENT_CAPABILITIES: Final[dict[str, Any]] = {
    "general": {"positionEncodings": ["utf-16"]},
    "textDocument": {
        "synchronization": {"dynamicRegistration": False},
        "publishDiagnostics": {"versionSupport": True},
        "diagnostic": {"dynamicRegistration": True, "relatedDocumentSupport": False},
    },
    "workspace": {
        "configuration": True,
        "workspaceFolders": True,
        "didChangeConfiguration": {"dynamicRegistration": True},
        "didChangeWatchedFiles": {"dynamicRegistration": True},
        "diagnostics": {"refreshSupport": True},
    },
    "window": {"workDoneProgress": True},
}
"""The capabilities of this client, sent in `initialize`."""


T = TypeVar("T")


def decode(data: bytes | Raw, kind: type[T], what: str) -> T:
    """Decode `data` as a `kind`. Raises `MalformedMessage`, whose text calls the data `what`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"It sent {what} that can't be understood: {error}.") from error


def path_of(uri: str) -> Path | None:
    """Return the path in a `file:` URI. Servers escape URIs differently, so we compare paths."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def section_of(settings: dict[str, Any], section: str | None) -> Any:  # noqa: ANN401 - JSON
    """Return the settings below a dotted name, or `None` if that name does not exist."""
    value: Any = settings
    for name in section.split(".") if section else ():
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value
