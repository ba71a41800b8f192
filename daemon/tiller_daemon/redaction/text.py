"""Redacts keys from text, in every form in which a server may repeat them. Pure.

A server that quotes a request may escape the text: for JSON, for a URL, in base64. Each key has a
limited set of such forms, which are computed once. Text is searched for these forms, but not
parsed. `byte_stream` redacts the output of tools.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, quote_plus

from tiller_daemon.redaction.urls import SECRET_PLACEHOLDER

BASE64_CHARS_MIN: Final = 6
"""Shorter secrets are not searched for in base64, where they would match by chance."""

CREDENTIALS_CHARS_MIN: Final = 8
"""If the second word of a secret is shorter, it is not treated as a key, as it may be an ordinary
word."""

PREFIX_CHARS: Final = 4
"""After how many characters a possible secret is delayed: enough to be rare in other text."""

MATCHERS_CACHED_MAX: Final = 16
"""How many matchers are cached: one for each provider's keys, and one for all keys."""

_UPPER_ESCAPE: Final = re.compile(r"%[0-9A-F]{2}|\\u[0-9a-f]{4}")
_GO_ESCAPED: Final = frozenset("<>&")
_DOTNET_ESCAPED: Final = frozenset("<>&'\"`+")
"""Characters that Go and .NET escape in JSON, so that it can be embedded in HTML."""


class PartialRedaction(NamedTuple):
    """The result of redacting a text that may continue.

    `shown` can be shown now. `rest` must be redacted again together with the next piece; its first
    `seen_chars` characters have already been shown.
    """

    shown: str
    rest: str
    seen_chars: int


class SecretMatcher:
    """Finds secrets in all their forms; falsy if there are no secrets to find."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # An empty secret would be found everywhere.
        forms = {form for secret in secrets if secret for form in _forms_of(secret)}
        self._by_first: Final[dict[str, list[str]]] = {}
        # Longest first, so that of two secrets with the same start the longer one is redacted.
        for form in sorted(forms, key=len, reverse=True):
            self._by_first.setdefault(form[0], []).append(form)
        self.find_prefix: Final = re.compile(_prefix_pattern(forms, PREFIX_CHARS) or r"(?!)").search
        """Searches for the next place where a secret may start."""

    def __bool__(self) -> bool:
        return bool(self._by_first)

    def redact(self, text: str) -> str:
        """Return a complete text without the secrets."""
        return self.redact_part(text, 0, at_end=True).shown

    def redact_part(self, text: str, seen_chars: int, *, at_end: bool) -> PartialRedaction:
        """Redact a text of which the first `seen_chars` characters have already been shown.

        A secret may be cut off at the end of `text`. If the text continues, the cut secret becomes
        part of the rest. With `at_end`, it is redacted if at least half of it is there.
        """
        shown: list[str] = []
        done, at = seen_chars, 0
        while match := self.find_prefix(text, at):
            at = match.start()
            for form in self._by_first[text[at]]:
                left = len(text) - at
                if left < len(form) and form.startswith(text[at:]):
                    if not at_end:
                        return PartialRedaction(
                            "".join((*shown, text[done:at])), text[at:], max(0, done - at)
                        )
                    is_secret = 2 * left >= len(form)
                else:
                    is_secret = text.startswith(form, at)
                if is_secret:
                    shown += text[done:at], SECRET_PLACEHOLDER
                    done = at = at + len(form)
                    break
            else:
                at += 1
        # The end is too short for `find_prefix`, so it is shown, but may still begin a secret.
        rest = text[max(done, len(text) - PREFIX_CHARS + 1) :]
        return PartialRedaction(
            "".join((*shown, text[done:])) if shown else text[done:], rest, len(rest)
        )


class TextRedactor:
    """Redacts secrets from a text that comes in pieces.

    Text is delayed from the fourth character of a possible secret onwards, so at most three
    characters of a secret are shown.
    """

    def __init__(self, matcher: SecretMatcher) -> None:
        self._matcher: Final = matcher
        self._find_prefix: Final = matcher.find_prefix
        self._rest = ""
        self._seen_chars = 0

    def feed_if_clean(self, piece: str) -> bool:
        """Take a piece if all of it can be shown, as is usual; otherwise return False."""
        text = self._rest + piece
        if self._seen_chars < len(self._rest) or self._find_prefix(text):
            return False
        self._rest = text[-PREFIX_CHARS + 1 :]
        self._seen_chars = len(self._rest)
        return True

    def feed(self, piece: str) -> str:
        """Take the next piece and return the text that can be shown now."""
        if self.feed_if_clean(piece):
            return piece
        shown, self._rest, self._seen_chars = self._matcher.redact_part(
            self._rest + piece, self._seen_chars, at_end=False
        )
        return shown

    def end(self) -> str:
        """Return the delayed text at the end of the stream."""
        shown = self._matcher.redact_part(self._rest, self._seen_chars, at_end=True).shown
        self._rest, self._seen_chars = "", 0
        return shown


@lru_cache(MATCHERS_CACHED_MAX)
def matcher_for(secrets: tuple[str, ...]) -> SecretMatcher:
    """Return a matcher for these secrets; cached, as making one takes long."""
    return SecretMatcher(secrets)


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return a complete text without these secrets in any form."""
    return matcher_for(tuple(secrets)).redact(text)


def _forms_of(secret: str) -> Iterator[str]:
    """Yield all forms of a secret; for a secret such as `Bearer KEY`, also the forms of `KEY`."""
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
        _escape(secret, _GO_ESCAPED.__contains__),
        _escape(secret, _DOTNET_ESCAPED.__contains__),
        _escape(secret, lambda char: not _is_plain(char)),
        quote(secret, safe="", errors="replace"),
        quote(secret, safe="!*'()", errors="replace"),
        quote_plus(secret, errors="replace"),
        "".join(
            char if _is_plain(char) else f"%{char.encode(errors='replace').hex('%').upper()}"
            for char in secret
        ),
    ):
        yield escaped
        yield _UPPER_ESCAPE.sub(_swap_case, escaped)


def _is_plain(char: str) -> bool:
    return char.isascii() and char.isalnum()


def _escape(secret: str, must_escape: Callable[[str], bool]) -> str:
    return "".join(f"\\u{ord(char):04x}" if must_escape(char) else char for char in secret)


def _swap_case(escape: re.Match[str]) -> str:
    text = escape[0]
    return text.lower() if text[0] == "%" else text[:2] + text[2:].upper()


def _base64_forms(secret: bytes) -> Iterator[str]:
    """Yield the base64 forms of a secret at any position, such as after `Bearer ` or `user:`.

    base64 encodes three bytes as four characters, so there are three possible alignments.
    Characters that also depend on the neighbouring bytes are left out.
    """
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + secret).decode()
        form = encoded[-(-offset * 8 // 6) : (offset + len(secret)) * 8 // 6]
        yield form
        yield form.translate(str.maketrans("+/", "-_"))


def _prefix_pattern(forms: Iterable[str], chars: int) -> str:
    """Return a pattern that matches the first `chars` characters of any form."""
    by_first: dict[str, set[str]] = {}
    for form in forms:
        by_first.setdefault(form[0], set()).add(form[1:])
    alternatives: list[str] = []
    for first, rests in sorted(by_first.items()):
        pattern = re.escape(first)
        if chars > 1 and "" not in rests:
            pattern += f"(?:{_prefix_pattern(rests, chars - 1)})"
        alternatives.append(pattern)
    return "|".join(alternatives)
