"""Removes passwords and tokens from URLs, as in the output of `git remote -v`. Pure.

A URL may have a name and a password before its host: `https://me:hunter2@example.org/`. A long name
is a token: `https://ghp_…@github.com/`.
"""

import re
from typing import Final

SECRET_PLACEHOLDER: Final = "[secret]"  # noqa: S105
"""Replaces a secret in any text."""

URL_SECRET_CHARS_MAX: Final = 4_096
"""A longer name and password are shown; tokens of providers have up to some 2,000 characters."""

TOKEN_CHARS_MIN: Final = 20
"""A shorter name is not a token; the tokens of providers have at least 20 random characters."""

_BEGIN: Final = r":\\?/\\?/"
r"""The characters before the name; JSON may escape them: `https:\/\/`."""

_CHAR: Final = r"""[^\x00-\x20\x7f/?#\\"'`<>]"""
"""A character of a name or a password. A password may contain `@`."""

# In the name of a container's image, a digest follows: `docker://node:20@sha256:…`.
_URL: Final = re.compile(rf"({_BEGIN})({_CHAR}{{1,{URL_SECRET_CHARS_MAX}}})@(?!sha\d+:)")
_UNDECIDED: Final = re.compile(rf"{_BEGIN}({_CHAR}{{0,{URL_SECRET_CHARS_MAX}}})\Z")

# Letters and digits without an encoded `@`, as in an address.
_TOKEN: Final = re.compile(r"(?!.*%40)(?=.*[A-Za-z])(?=.*[0-9]|.*[a-z].*[A-Z]|.*[A-Z].*[a-z]).+")

_PUBLIC: Final = re.compile(
    r"\[secret\]|\$\{\w+\}|\$[A-Z_][A-Z0-9_]*|\{+[\w.]*\}+|%[sv]|%\(\w+\)s|[*.]+|[xX]+"
    r"|(?i:\$?(?:password|passwd|pass|pwd|pw))"
)
"""A placeholder, a variable or an example instead of a password. They stay, as a model can't edit
text that it does not see."""


def without_url_secrets(text: str) -> str:
    """Return `text` with `[secret]` instead of passwords and tokens in URLs.

    The text may also be bytes that were decoded as Latin-1.
    """
    return _URL.sub(_without_secrets, text) if "/" in text else text


def undecided_at(text: str) -> int:
    """Return where a name and password begin that may continue after `text`; else its length."""
    found = _UNDECIDED.search(text)
    return found.start(1) if found else len(text)


def _without_secrets(url: re.Match[str]) -> str:
    begin, name, colon, password = url[1], *url[2].partition(":")
    if password and password != name and not _PUBLIC.fullmatch(password):
        password = SECRET_PLACEHOLDER
    if len(name) >= TOKEN_CHARS_MIN and _TOKEN.fullmatch(name):
        name = SECRET_PLACEHOLDER
    return f"{begin}{name}{colon}{password}@"
