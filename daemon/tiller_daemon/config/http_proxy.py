"""Chooses the proxy for a server: the provider's, or else the environment's, or else none. Pure."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from msgspec import Struct

DEFAULT_PORTS = {"http": 80, "https": 443, "socks5": 1080}

VARIABLES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
"""The names of the proxy variables in lower case; upper case is accepted as well."""


class Proxy(Struct, frozen=True):
    """A proxy. Its text form never contains the user or password, so that it can be shown."""

    scheme: str
    """`http`, `https` (the connection to the proxy is encrypted too) or `socks5`."""
    host: str
    """The name or address of the proxy."""
    port: int
    """The port; the scheme's default if the address names no port."""
    user: str = ""
    """The user; empty if the proxy needs no login."""
    password: str = ""
    """The password, which is never shown or logged."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The password alone and as it is sent; both are redacted in the proxy's answers."""
        return (self.password, f"{self.user}:{self.password}") if self.password else ()

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"<Proxy {self}>"


def proxies_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy variables, which child processes get only without the passwords."""
    return {name: value for name, value in environ.items() if name.lower() in VARIABLES}


def parse_proxy(address: str) -> Proxy:
    """Return the proxy at `address`; an address without a scheme belongs to an HTTP proxy.

    Raises `ValueError` with the end of a sentence that begins with the source of the address.
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
    """Return the proxy for a server by `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.

    Names in lower case take precedence. Loopback addresses never use a proxy. If a variable has no
    valid address, raises `ValueError` with a sentence.
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
    # curl takes blanks as well as commas.
    names = no_proxy.replace(",", " ").lower().split()
    return any(_covers(one, host, port) for one in names)


def _covers(pattern: str, host: str, port: int) -> bool:
    if pattern == "*":
        return True
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
