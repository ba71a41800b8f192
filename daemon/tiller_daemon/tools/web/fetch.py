"""The tool `fetch`: a web page as text, with HTML converted to Markdown, and PDF to text."""

import codecs
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from email.message import Message
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.converter import convert
from tiller_daemon.files.documents import DocumentProblem, read_pages, with_marks
from tiller_daemon.tools.base import (
    Requirement,
    Tool,
    ToolEnvironment,
    ToolFailure,
    ToolPermission,
    ToolResult,
)
from tiller_daemon.tools.spilling import truncate_to_fit
from tiller_daemon.tools.web import markdown
from tiller_daemon.tools.web.address import any_address, is_public, parse_address
from tiller_daemon.tools.web.page import Page, get_page
from tiller_protocol.items import PDF

PERMISSION: Final = "fetch"

TIMEOUT_S: Final = 60.0
"""Twice the time for a page, as the conversion to Markdown takes time too."""

REASON_CHARS_MAX: Final = 1_000
"""How much of an error page the model gets."""

NUL_CHECKED_BYTES: Final = 8192
"""A NUL among this many first bytes makes a page binary."""

CHARSET_BYTES_MAX: Final = 1024
"""HTML declares its character set within this many first bytes, by its standard."""

HTML_KINDS: Final = frozenset({"text/html", "application/xhtml+xml"})
TEXT_KINDS: Final = re.compile(
    r"text/.*|.*\+(json|xml|yaml)|application/(json|xml|yaml|x-yaml|toml|javascript|x-javascript"
    r"|ecmascript|typescript|x-ndjson|jsonl|sql|graphql|x-sh|x-httpd-php|rtf|x-tex|x-latex)"
)

_MARKS: Final = {BOM_UTF8: "utf-8", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16"}
_META: Final = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]+)""", re.IGNORECASE)
_XML: Final = re.compile(rb"""<\?xml[^>]+encoding\s*=\s*["']([A-Za-z0-9_.-]+)""")
_MEANT: Final = {"ascii": "cp1252", "iso8859-1": "cp1252"}
"""On the web, these names mean Windows-1252 (https://encoding.spec.whatwg.org)."""

_NO_CHARSETS: Final = frozenset(
    {"idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape"}
)
"""Python's codecs that are not character sets of pages; some take very long."""


class FetchArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `fetch`."""

    url: Annotated[str, Meta(description="An address that begins with https:// or http://")]


def _requirements(arguments: FetchArguments, workspace: Path) -> tuple[Requirement, ...]:  # noqa: ARG001
    address = parse_address(arguments.url)
    server = address.authority
    title = f"Fetch {address}"
    return (Requirement(PERMISSION, (server,), (server,), title=title, detail=str(address)),)


async def _run(arguments: FetchArguments, environment: ToolEnvironment) -> ToolResult:
    address = parse_address(arguments.url)
    if any(secret in arguments.url for secret in environment.secrets):
        raise ToolFailure("The URL contains a key, so it is not fetched.")
    may_reach = any_address if environment.web.private_addresses else is_public
    page = await get_page(address, environment.web.proxies, may_reach)
    text = await _text(page, environment)
    if page.status >= HTTPStatus.BAD_REQUEST:
        raise ToolFailure(_refusal(page, text))
    output, spill_path = await truncate_to_fit(f"{_about(page)}\n\n{text}", environment)
    return ToolResult(output, title=str(page.address), spill_path=spill_path)


FETCH: Final = Tool(
    name="fetch",
    description=(
        "Get a web page: HTML is converted to Markdown, other text is returned as it is. Only the "
        "address is sent, so pages behind a login are not available. To download a file, use a "
        "command."
    ),
    arguments=FetchArguments,
    effect="read",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    permission=ToolPermission(PERMISSION),
    run=_run,
)


async def _text(page: Page, environment: ToolEnvironment) -> str:
    kind, charset = page.media_type, _charset(page)
    is_text = TEXT_KINDS.fullmatch(kind) or not kind
    if kind in HTML_KINDS:
        html = _decode(page.body, charset)
        given = f"{page.address}\n{html}".encode(errors="replace")
        made = await convert(markdown.__file__, given, environment.commands.variables())
        text = html if made is None else made.decode(errors="replace")
        return text or "(The page has no text.)"
    if page.status >= HTTPStatus.BAD_REQUEST and not is_text:
        return ""
    if kind == PDF:
        return await _document(page, environment)
    # UTF-16 contains NULs as well, but only with a declared encoding is it known to be text.
    if not is_text or (not charset and b"\0" in page.body[:NUL_CHECKED_BYTES]):
        content = "binary" if is_text else kind
        raise ToolFailure(
            f"{page.address} is {content}, not text. Download it with a command such as `curl -o`."
        )
    return _decode(page.body, charset)


async def _document(page: Page, environment: ToolEnvironment) -> str:
    try:
        pages = await read_pages(page.body, environment.commands.variables())
    except DocumentProblem as problem:
        raise ToolFailure(f"The PDF at {page.address} can't be shown. {problem}") from None
    return with_marks(pages) if pages.has_text else "(The PDF has no text; it may be a scan.)"


def _charset(page: Page) -> str:
    """Return the character set from the byte order mark, the header or the text; may be empty."""
    if mark := next((mark for mark in _MARKS if page.body.startswith(mark)), None):
        return _MARKS[mark]
    fields = Message()
    fields["Content-Type"] = page.kind
    charset = fields.get_param("charset")
    if isinstance(charset, str):
        return charset
    beginning = page.body[:CHARSET_BYTES_MAX]
    declared = _XML.match(beginning)
    if page.media_type in HTML_KINDS:
        declared = declared or _META.search(beginning)
    name = declared[1].decode() if declared else ""
    # The declaration could not be read if it were true.
    return "" if name.lower().startswith("utf-16") else name


def _decode(data: bytes, charset: str) -> str:
    try:
        name = codecs.lookup(charset or "utf-8").name
        name = _MEANT.get(name, "utf-8" if name in _NO_CHARSETS else name)
        text = data.decode(name, errors="replace")
    except (LookupError, ValueError):
        text = data.decode(errors="replace")
    return text.removeprefix("\ufeff")


def _about(page: Page) -> str:
    beginning = "" if page.whole else f", the first {len(page.body) // 1024**2} MiB of it"
    return f"{page.address} ({page.media_type or 'of unknown type'}{beginning}):"


def _refusal(page: Page, text: str) -> str:
    try:
        phrase = f" {HTTPStatus(page.status).phrase}"
    except ValueError:
        phrase = ""
    reason = f" It says:\n{text[:REASON_CHARS_MAX]}" if text else ""
    return f"{page.address} answers {page.status}{phrase}.{reason}"
