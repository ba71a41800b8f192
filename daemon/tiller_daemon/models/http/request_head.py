"""Where a provider's requests go and what stands at their head: address, query, headers, key.

Pure. What is configured is checked once, when the provider is made.
"""

from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from tiller_daemon.config import Provider

BEARER = "authorization"
"""The header in which a key goes as `Bearer KEY`; in any other one it stands alone."""

DEFAULT_HEADERS = {
    "accept": "text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "tiller",
}

MODEL_IN_PATH = "{model}"


class RequestHead:
    """What every request to one provider has in common.

    Raises `ValueError` for a base URL or a header that can't be used. `{model}` in the path of the
    base URL stands for the name of the model.
    """

    def __init__(self, name: str, provider: Provider) -> None:
        self.url = _parsed(name, provider.base_url or "")
        self.own = {field.lower(): value for field, value in provider.headers.items()}
        """The headers that are configured, by name in lower case."""
        for field, value in self.own.items():
            if not can_be_sent(field + value):
                raise ValueError(
                    f"a header of provider {name} holds a character that can't be sent ({field})"
                )
        self._key_header = (provider.api_key_header or BEARER).lower()
        self._query = urlencode({**dict(parse_qsl(self.url.query)), **provider.query})
        self._authority = self.url.netloc.rpartition("@")[2]

    @property
    def shown(self) -> str:
        """The base URL as a message may show it: without a name, a password or a query."""
        return self.url._replace(netloc=self._authority, query="", fragment="").geturl()

    @property
    def takes_key(self) -> bool:
        """Whether the key is to be sent: no header that is configured stands for it."""
        return self._key_header not in self.own

    def fields(self, headers: Mapping[str, str], key: str) -> dict[str, str]:
        """The headers of a request; `headers` are its own and give way to what is configured."""
        fields = {"host": self._authority, **DEFAULT_HEADERS, **headers, **self.own}
        if key:
            fields[self._key_header] = f"Bearer {key}" if self._key_header == BEARER else key
        return fields

    def address(self, path: str, model: str, *, from_root: bool) -> str:
        """The URL of `path` under the base URL, or under the server's root."""
        base = self.url.path.replace(MODEL_IN_PATH, quote(model, safe="")).rstrip("/")
        base = "" if from_root else base
        query = f"?{self._query}" if self._query else ""
        return f"{self.url.scheme}://{self._authority}{base}{path}{query}"


def can_be_sent(text: str) -> bool:
    """Whether `text` may stand in a header."""
    return text.isascii() and (text.isprintable() or not text)


def _parsed(name: str, base_url: str) -> SplitResult:
    try:
        url = urlsplit(base_url)
        if url.scheme in ("http", "https") and url.hostname and url.port != 0:
            return url
    except ValueError:
        pass
    raise ValueError(f"base_url of provider {name} is no http or https address")
