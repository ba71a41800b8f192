"""The messages of the protocol that are used, as structs. Pure.

What a server sends beside the fields named here is passed over.
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
"""The severity that stops a program; 2 is a warning, 3 and 4 are remarks."""


class MalformedMessage(Exception):
    """What came can't be understood; the message is a clause that says so."""


class ResponseError(Struct, frozen=True):
    """Why a request was refused."""

    code: int = 0
    message: str = ""


class Incoming(Struct, frozen=True):
    """Whatever a server sends: a request has an id and a method, an answer only an id."""

    id: int | str | None = None
    method: str | None = None
    params: Raw = Raw(b"null")
    result: Raw = Raw(b"null")
    error: ResponseError | None = None


class Position(Struct, frozen=True):
    """A place in a file; both count from 0."""

    line: int = 0
    character: int = 0


class Range(Struct, frozen=True):
    """Where something is; only where it begins is of use."""

    start: Position = Position()


class Diagnostic(Struct, frozen=True):
    """What a server has found in a file."""

    range: Range
    message: str
    severity: int = ERROR
    code: int | str | None = None


class PublishDiagnosticsParams(Struct, frozen=True):
    """What a server says by itself of a file."""

    uri: str
    diagnostics: tuple[Diagnostic, ...]
    version: int | None = None


class DocumentDiagnosticReport(Struct, frozen=True):
    """What a server answers when it is asked about a file."""

    items: tuple[Diagnostic, ...] = ()


class ServerCapabilities(Struct, frozen=True, rename="camel"):
    """What a server can do; only whether it can be asked for diagnostics is of use."""

    diagnostic_provider: Any = None


class InitializeResult(Struct, frozen=True):
    """How a server introduces itself."""

    capabilities: ServerCapabilities = ServerCapabilities()


class Registration(Struct, frozen=True):
    """Something that a server wants to be told, or can do."""

    method: str


class RegistrationParams(Struct, frozen=True):
    """What a server registers."""

    registrations: tuple[Registration, ...] = ()


class ConfigurationItem(Struct, frozen=True):
    """A part of the settings."""

    section: str | None = None


class ConfigurationParams(Struct, frozen=True):
    """The settings that a server asks for."""

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
"""What this client can do, as it says in `initialize`."""


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as bytes."""
    return msgspec.json.encode({"jsonrpc": "2.0", **message})


T = TypeVar("T")


def decode(data: bytes | Raw, kind: type[T], what: str) -> T:
    """Return what `data` holds; raises `MalformedMessage`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"it sent {what} that can't be understood: {error}") from error


def path_of(uri: str) -> Path | None:
    """The file that a server means: each writes a URI in its own way."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def section_of(settings: dict[str, Any], section: str | None) -> Any:  # noqa: ANN401 - JSON
    """The part of the settings under a dotted name; `None` where there is none."""
    found: Any = settings
    for name in section.split(".") if section else ():
        found = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
    return found
