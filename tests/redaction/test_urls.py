"""Passwords and tokens in URLs are replaced, however the text comes, and other text stays."""

from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.redaction.byte_stream import ByteRedactor, without_secrets
from tiller_daemon.redaction.urls import URL_SECRET_CHARS_MAX, without_url_secrets

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"

HIDDEN = {
    "https://user:hunter2@host/a.git": "https://user:[secret]@host/a.git",
    "origin\thttps://me:hunter2@host/a.git (push)": "origin\thttps://me:[secret]@host/a.git (push)",
    f"https://{TOKEN}@github.com/a/b": "https://[secret]@github.com/a/b",
    f"https://x-access-token:{TOKEN}@github.com": "https://x-access-token:[secret]@github.com",
    f"https://{TOKEN}:x-oauth-basic@github.com": "https://[secret]:[secret]@github.com",
    f"https://{TOKEN}:@github.com/": "https://[secret]:@github.com/",
    f"https://:{TOKEN}@github.com/": "https://:[secret]@github.com/",
    "https://oauth2:glpat-Xy12@gitlab.com/x": "https://oauth2:[secret]@gitlab.com/x",
    f"https://{'abcdefghij' * 2 + 'K'}@host": "https://[secret]@host",
    "postgres://app:s3cr3t@db:5432/app?ssl=on": "postgres://app:[secret]@db:5432/app?ssl=on",
    "redis://:hunter2@localhost:6379/0": "redis://:[secret]@localhost:6379/0",
    "mongodb+srv://a:b%40c@x.mongodb.net": "mongodb+srv://a:[secret]@x.mongodb.net",
    "amqp://a:p@ss:w@host": "amqp://a:[secret]@host",
    "jdbc:mysql://a:é§ü@host/x": "jdbc:mysql://a:[secret]@host/x",
    '"url": "https://a:b!(c)[d]@host"': '"url": "https://a:[secret]@host"',
    r'{"url":"https:\/\/a:hunter2@host\/x"}': r'{"url":"https:\/\/a:[secret]@host\/x"}',
    "HTTPS_PROXY=http://me:pw1@proxy:3128 NO_PROXY=": (
        "HTTPS_PROXY=http://me:[secret]@proxy:3128 NO_PROXY="
    ),
    "fatal: unable to access 'https://a:b1@host/': x": (
        "fatal: unable to access 'https://a:[secret]@host/': x"
    ),
    "git+ssh://git:k3y@host/a https://c:d1@e": "git+ssh://git:[secret]@host/a https://c:[secret]@e",
    "pip --index-url=https://a:${X:-hunter2}@pypi": "pip --index-url=https://a:[secret]@pypi",
    "https://a:$ecret@host": "https://a:[secret]@host",
    "https://a:secret@host": "https://a:[secret]@host",
}

SHOWN = (
    "https://github.com/a/b", "https://git@github.com/a/b", "ssh://git@host:22/a", "git@host:a/b",
    "https://host/@scope/package", "https://host?mail=me@host", "https://host#me@host", "a@b://c",
    "http://localhost:8080/", "http://localhost:8080\nmail me@host", '["http://a:1","me@b"]',
    "<http://a:1><me@b>", "`http://a:1`, me@b", "see http://a:80 or me@b", "://", "@", "x://@",
    "docker://node:20@sha256:c0ffee", "https://me%40company-of-5.example@dev.azure.com/x",
    "https://my-organisation-name@dev.azure.com/x", "https://user:password@host",
    "postgres://postgres:postgres@localhost/test", "https://a:$TOKEN@host", "https://a:${T}@host",
    'f"https://{user}:{self.password}@{host}"', "https://%s:%s@host", "https://a:***@host",
    "https://<user>:<password>@host", "https://a:${{ secrets.T }}@host", "https://a:@host",
    "https://a:[secret]@host", "https://[secret]@host", "https://a:%(pw)s@host", "mailto:a:b@c",
    f"https://a:{'x' * URL_SECRET_CHARS_MAX}1@host",
)  # fmt: skip

TEXTS = st.lists(
    st.sampled_from(("https", ":", "/", "\\", "@", "user", "k3y", " ", '"', "é", "sha256:", TOKEN)),
    max_size=12,
).map("".join)


def in_pieces(text: str, cuts: list[int], secrets: tuple[str, ...] = ()) -> str:
    data, redaction = text.encode(), ByteRedactor(secrets)
    ends = [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = (data[begin:end] for begin, end in zip([0, *ends], ends, strict=False))
    return (b"".join(map(redaction.feed, pieces)) + redaction.end()).decode()


@each("text", HIDDEN)
def test_passwords_and_tokens_are_hidden(text):
    assert without_url_secrets(text) == HIDDEN[text]


@each("text", SHOWN)
def test_other_text_stays(text):
    assert without_url_secrets(text) == text


@each("text", [*HIDDEN, *SHOWN])
def test_a_text_in_two_pieces_is_redacted_like_the_whole(text):
    size = len(text.encode()) if text in HIDDEN else min(len(text.encode()), 100)
    for cut in range(size + 1):
        assert in_pieces(text, [cut]) == HIDDEN.get(text, text), cut
    assert in_pieces(text, [*range(size + 1)]) == HIDDEN.get(text, text)


@given(TEXTS)
def test_a_text_that_is_redacted_twice_is_redacted_like_once(text):
    once = without_url_secrets(text)
    assert without_url_secrets(once) == once


@given(TEXTS, st.lists(st.integers(0, 400)))
def test_pieces_are_redacted_like_the_whole(text, cuts):
    assert in_pieces(text, cuts) == without_url_secrets(text)
    assert in_pieces(text, cuts, ("k3y",)) == without_secrets(text, ("k3y",))


def test_only_what_may_be_a_password_waits():
    redaction = ByteRedactor(())
    assert redaction.feed(b"Password:") == b"Password:"
    assert redaction.feed(b" see https:/") == b" see https:/"
    assert redaction.feed(b"/a") == b"/"
    assert redaction.feed(b":b") == b""
    assert redaction.feed(b"/c") == b"a:b/c"
    assert redaction.feed(b"://me:pw1@") == b"://"
    assert redaction.feed(b"host\n") == b"me:[secret]@host\n"
    assert redaction.feed(b"://" + b"x" * URL_SECRET_CHARS_MAX) == b"://"
    assert redaction.feed(b"x") == b"x" * (URL_SECRET_CHARS_MAX + 1)
    assert redaction.feed(b" ://last:pw1@host") == b" ://"
    assert redaction.end() == b"last:[secret]@host"
