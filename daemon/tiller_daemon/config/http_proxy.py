"""Chooses the proxy for a server: the provider's own, else the environment's, else none. Pure."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from msgspec import Struct

DEFAULT_PORTS = {"http": 80, "https": 443, "socks5": 1080}

VARIABLES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
"""In lower case; upper case is accepted as well."""


class Proxy(Struct, frozen=True):
    """A proxy. Its text never holds the user or password, so that it can be shown."""

    scheme: str
    """`http`, `https` (the connection to the proxy is encrypted too) or `socks5`."""
    host: str
    """Name or address."""
    port: int
    """The default of the scheme if the address has none."""
    user: str = ""
    """Empty if the proxy needs no login."""
    password: str = ""
    """Never shown or logged."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The password alone and as sent, to be redacted in what the proxy answers."""
        return (self.password, f"{self.user}:{self.password}") if self.password else ()

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"<Proxy {self}>"


def proxies_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The proxy variables. They may hold passwords, so child processes do not get them as is."""
    return {name: value for name, value in environ.items() if name.lower() in VARIABLES}


def parse_proxy(address: str) -> Proxy:
    """The proxy at `address`; raises `ValueError` with the end of a sentence, without the address.

    An address without a scheme is that of an HTTP proxy.
    """
    try:
        url = urlsplit(address if "://" in address else f"http://{address}")
        scheme = "socks5" if url.scheme == "socks5h" else url.scheme
        port = url.port
    except ValueError:
        raise ValueError("is not a valid proxy address") from None
    if scheme not in DEFAULT_PORTS or not url.hostname:
        raise ValueError("is not a valid address of an http, https or socks5 proxy")
    return Proxy(
        scheme,
        url.hostname,
        port or DEFAULT_PORTS[scheme],
        unquote(url.username or ""),
        unquote(url.password or ""),
    )


def proxy_of_environment(
    scheme: str, host: str, port: int, environ: Mapping[str, str]
) -> Proxy | None:
    """The proxy for a server by `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.

    Names in lower case take precedence. Loopback addresses never use a proxy. Raises `ValueError`,
    a sentence, for a variable that holds no valid address.
    """
    if _is_loopback(host) or _is_excepted(host, port, _variable("no_proxy", environ)[1]):
        return None
    for name in (f"{scheme}_proxy", "all_proxy"):
        variable, address = _variable(name, environ)
        if address:
            try:
                return parse_proxy(address)
            except ValueError as error:
                raise ValueError(f"the variable {variable} {error}") from None
    return None


def _variable(name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    for spelling in (name, name.upper()):
        if value := environ.get(spelling, "").strip():
            return spelling, value
    return name, ""


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_excepted(host: str, port: int, no_proxy: str) -> bool:
    """Whether `NO_PROXY` covers the server: by domain, address, network or `*`."""
    return any(_covers(one.strip().lower(), host, port) for one in no_proxy.split(","))


def _covers(pattern: str, host: str, port: int) -> bool:
    if not pattern or pattern == "*":
        return pattern == "*"
    try:
        network = ipaddress.ip_network(pattern.strip("[]"), strict=False)
        return ipaddress.ip_address(host) in network
    except ValueError:
        pass
    name, colon, pattern_port = pattern.rpartition(":")
    if colon and pattern_port.isdecimal():
        if int(pattern_port) != port:
            return False
        pattern = name
    domain = pattern.removeprefix("*").lstrip(".")
    return host == domain or host.endswith(f".{domain}")
