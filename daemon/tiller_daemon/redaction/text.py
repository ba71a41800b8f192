"""Taking keys out of texts in every spelling in which a server repeats them (G13). Pure.

A server quotes what it was sent, and quotes are escaped: as JSON, in a URL, in base64. Each key has
a bounded set of spellings, made once; nothing is parsed. What programs print is in `redaction`.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, quote_plus

from tiller_daemon.redaction.byte_stream import SECRET_PLACEHOLDER

BASE64_CHARS_MIN: Final = 6
"""A shorter secret is not looked for in base64: it would be found in what is none."""

CREDENTIALS_CHARS_MIN: Final = 8
"""A shorter word behind another one is no key of its own: it may be an ordinary word."""

PREFIX_CHARS: Final = 4
"""From how much of its beginning on a text may be a secret: enough to be rare in other texts."""

MATCHERS_CACHED_MAX: Final = 16
"""Sets of secrets whose spellings are kept: one of each provider, and one of all."""

_UPPER_ESCAPE: Final = re.compile(r"%[0-9A-F]{2}|\\u[0-9a-f]{4}")
_TAG_SIGNS: Final = frozenset("<>&")
_HTML_SIGNS: Final = frozenset("<>&'\"`+")
"""What Go and .NET write JSON without, so that it can stand in a page."""


class PartialRedaction(NamedTuple):
    """A text of which `shown` can be shown, and `rest` is looked at again with what comes next.

    The first `seen_chars` of the rest have been shown already.
    """

    shown: str
    rest: str
    seen_chars: int


class SecretMatcher:
    """Every spelling of some secrets; falsy when there are none to look for."""

    def __init__(self, secrets: Iterable[str]) -> None:
        found = {spelling for secret in secrets for spelling in _forms_of(secret)}
        self._by_first: Final[dict[str, list[str]]] = {}
        for spelling in sorted(found, key=len, reverse=True):
            self._by_first.setdefault(spelling[0], []).append(spelling)
        self.begin: Final = re.compile(_prefix_pattern(found, PREFIX_CHARS) or r"(?!)").search

    def __bool__(self) -> bool:
        return bool(self._by_first)

    def redact(self, text: str) -> str:
        """Return a whole text without the secrets."""
        return self.cut(text, 0, at_end=True).shown

    def cut(self, text: str, seen_chars: int, *, at_end: bool) -> PartialRedaction:
        """Take the secrets out of a text, the first characters of which have been shown.

        The rest may go on as a secret. `at_end` nothing more comes: then the greater part of a
        secret is taken for one.
        """
        shown: list[str] = []
        done, at = seen_chars, 0
        while match := self.begin(text, at):
            at = match.start()
            for spelling in self._by_first[text[at]]:
                left = len(text) - at
                if left < len(spelling) and spelling.startswith(text[at:]):
                    if not at_end:
                        return PartialRedaction(
                            "".join((*shown, text[done:at])), text[at:], max(0, done - at)
                        )
                    is_secret = 2 * left >= len(spelling)
                else:
                    is_secret = text.startswith(spelling, at)
                if is_secret:
                    shown += text[done:at], SECRET_PLACEHOLDER
                    done = at = at + len(spelling)
                    break
            else:
                at += 1
        rest = text[max(done, len(text) - PREFIX_CHARS + 1) :]
        return PartialRedaction(
            "".join((*shown, text[done:])) if shown else text[done:], rest, len(rest)
        )


class TextRedactor:
    """Takes secrets out of a text that comes in pieces.

    What may be a secret waits from its fourth character on; so few of one are shown at the most.
    """

    def __init__(self, spellings: SecretMatcher) -> None:
        self._matcher: Final = spellings
        self._begin: Final = spellings.begin
        self._rest = ""
        self._seen_chars = 0

    def passes(self, piece: str) -> bool:
        """Take a piece if all of it can be shown, as nearly always, and say so; else do nothing."""
        text = self._rest + piece
        if self._seen_chars < len(self._rest) or self._begin(text):
            return False
        self._rest = text[-PREFIX_CHARS + 1 :]
        self._seen_chars = len(self._rest)
        return True

    def take(self, piece: str) -> str:
        """Return what can be shown by now."""
        if self.passes(piece):
            return piece
        shown, self._rest, self._seen_chars = self._matcher.cut(
            self._rest + piece, self._seen_chars, at_end=False
        )
        return shown

    def end(self) -> str:
        """Return what has not been shown, when nothing more comes of this text."""
        shown = self._matcher.cut(self._rest, self._seen_chars, at_end=True).shown
        self._rest, self._seen_chars = "", 0
        return shown


@lru_cache(MATCHERS_CACHED_MAX)
def matcher_for(secrets: tuple[str, ...]) -> SecretMatcher:
    """The spellings of these secrets."""
    return SecretMatcher(secrets)


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return the text without these secrets, however they are spelled."""
    return matcher_for(tuple(secrets)).redact(text)


def _forms_of(secret: str) -> Iterator[str]:
    """How a secret may be written; of one such as `Bearer KEY` the key alone too."""
    _, _, credentials = secret.partition(" ")
    alone = len(credentials) >= CREDENTIALS_CHARS_MIN and " " not in credentials
    for one in (secret, credentials) if alone else (secret,):
        yield from (text for text in _escaped_forms(one) if text)
        if len(one) >= BASE64_CHARS_MIN:
            yield from _base64_forms(one.encode(errors="replace"))


def _escaped_forms(secret: str) -> Iterator[str]:
    plain = json.dumps(secret, ensure_ascii=False)[1:-1]
    yield from (secret, plain, plain.replace("/", r"\/"), json.dumps(secret)[1:-1])
    for escaped in (
        _with_escapes(secret, _TAG_SIGNS.__contains__),
        _with_escapes(secret, _HTML_SIGNS.__contains__),
        _with_escapes(secret, lambda sign: not _is_plain(sign)),
        quote(secret, safe="", errors="replace"),
        quote(secret, safe="!*'()", errors="replace"),
        quote_plus(secret, errors="replace"),
        "".join(
            sign if _is_plain(sign) else f"%{sign.encode(errors='replace').hex('%').upper()}"
            for sign in secret
        ),
    ):
        yield escaped
        yield _UPPER_ESCAPE.sub(_in_other_case, escaped)


def _is_plain(sign: str) -> bool:
    return sign.isascii() and sign.isalnum()


def _with_escapes(secret: str, wanted: Callable[[str], bool]) -> str:
    return "".join(f"\\u{ord(sign):04x}" if wanted(sign) else sign for sign in secret)


def _in_other_case(escape: re.Match[str]) -> str:
    text = escape[0]
    return text.lower() if text[0] == "%" else text[:2] + text[2:].upper()


def _base64_forms(secret: bytes) -> Iterator[str]:
    """What base64 makes of a secret wherever it stands: alone, behind `Bearer ` or `user:`.

    Of each three bytes it makes four signs, so there are three ways; the signs in which there is
    something of what stands beside it are left out.
    """
    for before in range(3):
        signs = base64.b64encode(bytes(before) + secret).decode()
        own = signs[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]
        yield own
        yield own.translate(str.maketrans("+/", "-_"))


def _prefix_pattern(spellings: Iterable[str], chars: int) -> str:
    """A pattern for where a spelling begins: its first characters."""
    by_first: dict[str, set[str]] = {}
    for spelling in spellings:
        by_first.setdefault(spelling[0], set()).add(spelling[1:])
    alternatives: list[str] = []
    for first, rests in sorted(by_first.items()):
        pattern = re.escape(first)
        if chars > 1 and "" not in rests:
            pattern += f"(?:{_prefix_pattern(rests, chars - 1)})"
        alternatives.append(pattern)
    return "|".join(alternatives)
