"""What a value on the command line may be. Imports the standard library only.

The protocol is UTF-8, but words of the command line and names of files may be any bytes, which
Python keeps in them as surrogates. `Parser` converts every value to UTF-8 text, unless the value's
type is `path` or `program_word`. Paths are converted by `prompt` when they are about to be sent.
"""

import os

NEEDS_UTF8 = "is not valid UTF-8, but tiller's protocol transfers all text as UTF-8"


def path(word: str) -> str:
    """The type of the path of a file or directory on this machine."""
    return word


def any_text(word: str) -> str:
    """The type of a text that may be empty."""
    return word


def program_word(word: str) -> str:
    """The type of a word that another program gets; it may be empty and have any bytes."""
    return word


MAY_BE_EMPTY = (any_text, program_word)
MAY_BE_BYTES = (path, program_word)


def as_utf8(word: str) -> str:
    """Return a word or path as text; raises `UnicodeDecodeError` if its bytes are not UTF-8.

    In a locale that has only ASCII, the bytes may still be UTF-8.
    """
    try:
        word.encode()
    except UnicodeEncodeError:
        return os.fsencode(word).decode()
    return word


def shown_bytes(word: str) -> str:
    """Return a word or path in which each invalid byte is written as an escape sequence."""
    return os.fsencode(word).decode(errors="backslashreplace")
