"""Web addresses that a model names: which URLs may be fetched, and from which machines. Pure.

Only `http` and `https` without user names and passwords, and by default only from the public
internet: services on this machine or in its network trust whoever can reach them.
"""

import ipaddress
from typing import Final, NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from tiller_daemon.tools.base import ToolFailure

URL_CHARS_MAX: Final = 8_000
"""The longest URL that servers should accept, by RFC 9110."""

PORTS: Final = {"http": 80, "https": 443}

_NOT_PUBLIC: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        "2001::/23", "2001:db8::/32", "3fff::/20",
    )
)  # fmt: skip
"""Addresses that are not globally reachable by IANA's special-purpose registries, and multicast.

Python's own table (`is_global`) differs between its releases.
"""

_PUBLIC_V6: Final = ipaddress.IPv6Network("2000::/3")
"""All global unicast addresses that IANA has assigned; site-local `fec0::/10` is not among them."""

_METADATA: Final = frozenset({ipaddress.ip_address("168.63.129.16")})
"""Cloud metadata services at public addresses (Azure's), which give a machine its secrets.

Other clouds use link-local, shared, unique local or protocol addresses, which are never public.
"""

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_SAFE: Final = "%/:=&?~#+!$,;'@()*[]|"
"""Characters that stay as they are in a path and a query: delimiters, and `%` of escapes."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class WebAddress(NamedTuple):
    """The address of a page; `target` is its path and query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The name of the server, and its port if it is not the default one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_address(text: str) -> WebAddress:
    """Parse a URL. Raises `ToolFailure` if it must not be fetched."""
    if len(text) > URL_CHARS_MAX:
        raise ToolFailure(f"The URL has more than {URL_CHARS_MAX} characters.")
    try:
        url = urlsplit(text.strip())
        host, port = _host(url.hostname or ""), url.port
    except (ValueError, UnicodeError):
        raise ToolFailure(f"{_shown(text)} is not a URL.") from None
    if url.scheme not in PORTS or not host:
        raise ToolFailure(f"{_shown(text)} is not a URL that begins with http:// or https://.")
    if url.username is not None or url.password is not None:
        raise ToolFailure("A URL with a user name or password is not fetched.")
    if port == 0:
        raise ToolFailure(f"{_shown(text)} has the port 0, which no server can use.")
    return WebAddress(url.scheme, host, port or PORTS[url.scheme], _target(url))


def redirected(address: WebAddress, location: str) -> WebAddress:
    """Return the address that a redirect leads to. Raises `ToolFailure`."""
    try:
        return parse_address(urljoin(str(address), location))
    except ValueError:
        message = f"{address} redirects to {_shown(location)}, which is not a URL."
        raise ToolFailure(message) from None


def is_same_server(first: WebAddress, second: WebAddress) -> bool:
    """Whether the permission to fetch from the first server covers the second.

    Both must have the same host and port, and https must not become http. The default ports of http
    and https count as the same port, because the question to the user shows no default port.
    """
    secure = (first.scheme, second.scheme) != ("https", "http")
    return first.authority == second.authority and secure


def is_public(address: IpAddress) -> bool:
    """Whether an address is on the public internet, as far as the address shows."""
    inner = _embedded(address)
    if inner is not None:
        return is_public(inner)
    if address in _METADATA or any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and (address.version == 4 or address in _PUBLIC_V6)


def any_address(address: IpAddress) -> bool:  # noqa: ARG001
    """Return True for all addresses."""
    return True


def address_in(host: str) -> IpAddress | None:
    """Return the address if the host is a literal one; None for a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _embedded(address: IpAddress) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address embeds, if any."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


def _host(name: str) -> str:
    """Return a host name in ASCII, for requests and rules, so that no name looks like another."""
    if not name or address_in(name):
        return name
    plain = name.rstrip(".").encode("idna").decode()
    if any(not (character.isalnum() or character in "-._") for character in plain):
        raise ValueError(name)
    return plain.lower()


def _target(url: SplitResult) -> str:
    path = quote(url.path or "/", safe=_SAFE)
    return f"{path}?{quote(url.query, safe=_SAFE)}" if url.query else path


def _shown(text: str) -> str:
    return repr(text[:200])
