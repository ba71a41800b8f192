"""The URL and the headers of requests to a provider. Pure.

The settings are checked once, when the provider is created.
"""

import re
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from tiller_daemon.config import Provider

BEARER = "authorization"
"""The header in which a key is sent as `Bearer KEY`; any other header contains the key alone."""

DEFAULT_HEADERS = {
    "accept": "text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "tiller",
}

_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
_HOST = re.compile(r"[-a-z0-9._~%:]+")
_SAFE = "%/:=&?~#+!$,;'@()*[]|"
"""Characters that a path may contain unescaped: delimiters, and `%`, which begins an escape."""

MODEL_IN_PATH = "{model}"


class RequestHead:
    """Makes the URLs and headers of requests to one provider.

    `{model}` in the path of the base URL is replaced by the name of the model. Raises `ValueError`
    if the base URL or a header is invalid.
    """

    def __init__(self, name: str, provider: Provider) -> None:
        self.url = _parse_base_url(name, provider.base_url or "")
        self.configured_headers = {
            field.lower(): value for field, value in provider.headers.items()
        }
        """The configured headers, with names in lower case."""
        for field, value in self.configured_headers.items():
            if not _NAME.fullmatch(field) or not is_header_safe(value):
                raise ValueError(
                    f"the header {field} of provider {name} contains an invalid character"
                )
        self._key_header = (provider.api_key_header or BEARER).lower()
        self._query = urlencode({**dict(parse_qsl(self.url.query)), **provider.query})
        self.host, self._host_field = _host_of(name, self.url)
        """The host to connect to: a name in ASCII, or an address."""

    @property
    def display_url(self) -> str:
        """The base URL for messages, without user name, password and query, which may be secret."""
        authority = self.url.netloc.rpartition("@")[2]
        return self.url._replace(netloc=authority, query="", fragment="").geturl()

    @property
    def takes_key(self) -> bool:
        """Whether to send the key: False if the key's header is configured explicitly."""
        return self._key_header not in self.configured_headers

    def fields(self, headers: Mapping[str, str], key: str) -> dict[str, str]:
        """Return the headers of a request. Configured headers override those in `headers`."""
        fields = {"host": self._host_field, **DEFAULT_HEADERS, **headers, **self.configured_headers}
        if key:
            fields[self._key_header] = f"Bearer {key}" if self._key_header == BEARER else key
        return fields

    def target_for(self, path: str, model: str, *, from_root: bool) -> str:
        """Return the target of a request: `path` below the base URL, or below `/` (`from_root`)."""
        base = self.url.path.replace(MODEL_IN_PATH, quote(model, safe="")).rstrip("/")
        base = "" if from_root else base
        query = f"?{self._query}" if self._query else ""
        return quote(f"{base}{path}", safe=_SAFE) + query


def is_header_safe(text: str) -> bool:
    """Whether `text` is allowed in a header."""
    return text.isascii() and (text.isprintable() or not text)


def _host_of(name: str, url: SplitResult) -> tuple[str, str]:
    """Return the host to connect to, and the header `host`."""
    host = url.hostname or ""
    try:
        host = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        host = ""
    if not _HOST.fullmatch(host):
        raise ValueError(f"base_url of provider {name} has an invalid host name")
    field = f"[{host}]" if ":" in host else host
    return host, field if url.port is None else f"{field}:{url.port}"


def _parse_base_url(name: str, base_url: str) -> SplitResult:
    try:
        url = urlsplit(base_url)
        if url.scheme in ("http", "https") and url.hostname and url.port != 0:
            return url
    except ValueError:
        pass
    raise ValueError(f"base_url of provider {name} is not an http or https URL")
