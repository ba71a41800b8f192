"""A key is found in a text in every spelling that servers and their libraries give it (G13)."""

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.redaction.text import SecretMatcher, TextRedactor, matcher_for, redact

KEYS = (
    "sk-canary_0123456789",
    "ab+c/d=ef&0123<>'456789==",
    "schlüssel-0123456789",
)


def _dotnet(text: str) -> str:
    """As .NET escapes."""
    return "".join(f"\\u{ord(c):04X}" if c in "<>&'\"+`" else c for c in text)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "JSON": lambda key: json.dumps({"error": f"no {key}"}),
    "JSON in UTF-8": lambda key: json.dumps({"error": f"no {key}"}, ensure_ascii=False),
    "PHP": lambda key: json.dumps(f"no {key}").replace("/", "\\/"),
    "Go": lambda key: (
        json.dumps(key, ensure_ascii=False)
        .replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    ),
    ".NET": _dotnet,
    "every sign in JSON": lambda key: "".join(
        c if c.isascii() and c.isalnum() else f"\\u{ord(c):04x}" for c in key
    ),
    "URL": lambda key: f"/v1?key={quote(key, safe='')}&x=1",
    "URL in lower case": lambda key: f"/v1?key={_lower(quote(key, safe=''))}",
    "form": lambda key: f"key={quote_plus(key)}",
    "every sign in a URL": lambda key: "".join(
        c if c.isascii() and c.isalnum() else quote(c, safe="").replace(c, f"%{ord(c):02X}")
        for c in key
    ),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of Bearer": lambda key: base64.b64encode(f"Bearer {key}".encode()).decode(),
    "base64 of user:key": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    "base64 of me:key": lambda key: base64.b64encode(f"me:{key}".encode()).decode(),
    "base64 for URLs": lambda key: base64.urlsafe_b64encode(f"x:{key}?".encode()).decode(),
}  # fmt: skip


def _lower(text: str) -> str:
    return "".join(
        c.lower() if "%" in text[max(0, at - 2) : at] else c for at, c in enumerate(text)
    )


@each("name", SPELLINGS)
@each("key", KEYS)
@pytest.mark.promise("G13")
def test_a_key_is_found_however_it_is_spelled(key: str, name: str) -> None:
    said = f"It said: {SPELLINGS[name](key)}!"
    shown = redact(said, [key])
    assert "[secret]" in shown
    assert len(shown) < len(said) - len(key) + 14
    assert "123456" not in shown


@pytest.mark.promise("G13")
def test_of_a_header_with_a_scheme_the_key_is_found_alone_too() -> None:
    header = "Bearer sk-canary-0123456789"
    assert redact(f"no sk-canary-0123456789, {header}", [header]) == "no [secret], [secret]"
    assert redact("it is up to you", ["what is it"]) == "it is up to you"


def test_an_empty_key_is_found_nowhere() -> None:
    assert redact("hello", ["", "a key of 16 chars"]) == "hello"
    assert not SecretMatcher([""])


@pytest.mark.promise("G13")
def test_the_longest_key_is_taken_for_the_key() -> None:
    short, long = "sk-canary-1", "sk-canary-1-renewed"
    redaction = TextRedactor(matcher_for((short, long)))
    shown = [redaction.feed(piece) for piece in (short, "-rene", "wed, ", short, " ", short)]
    assert "".join(shown) + redaction.end() == "[secret], [secret] [secret]"


def test_only_what_may_be_the_beginning_of_a_key_waits() -> None:
    redaction = TextRedactor(matcher_for(("sk-12345",)))
    pieces = ("Ask", "ed sk-1", "", "23", "6", "s", "k-12", "345", "sk-12", "345")
    assert [redaction.feed(piece) for piece in pieces] == [
        "Ask", "ed ", "", "", "sk-1236", "s", "", "[secret]", "", "[secret]",
    ]  # fmt: skip
    assert redaction.end() == ""


def test_a_text_that_ends_in_the_greater_part_of_a_key_does_not_show_it() -> None:
    assert redact("cut: sk-canary-01234", ["sk-canary-0123456789"]) == "cut: [secret]"
    assert redact("cut: sk-can", ["sk-canary-0123456789"]) == "cut: sk-can"


@given(
    text=st.text(alphabet="abk-", max_size=60),
    secrets=st.lists(st.text(alphabet="abk", min_size=2, max_size=4), max_size=3),
)
@pytest.mark.promise("G13")
def test_no_secret_is_left_whatever_stands_around_it(text: str, secrets: list[str]) -> None:
    shown = redact(text, secrets)
    assert not any(secret in part for secret in secrets for part in shown.split("[secret]"))


def test_nothing_is_hidden_when_there_is_no_secret() -> None:
    assert redact("all of it", []) == redact("all of it", [""]) == "all of it"
    assert not matcher_for(())
