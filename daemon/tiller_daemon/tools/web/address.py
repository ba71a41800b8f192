"""Addresses of the web that a model names: what of them may be asked, and of which machines.

Pure. Only `http` and `https`, no names and passwords in it, and by default no machine that is not
on the public internet: what runs on this machine or in its network trusts whoever can reach it.
"""

import ipaddress
from typing import Final, NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from tiller_daemon.tools.base import ToolFailure

URL_CHARS_MAX: Final = 8_000
"""The longest URL that servers must take, by RFC 9110."""

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
"""What IANA's registries of special-purpose addresses do not call globally reachable; multicast.

Python has such a table too (`is_global`), but not the same one in each of its releases.
"""

_PUBLIC_V6: Final = ipaddress.IPv6Network("2000::/3")
"""All that IANA has given out as global unicast; site-local `fec0::/10` is not in it."""

_METADATA: Final = frozenset({ipaddress.ip_address("168.63.129.16")})
"""Where clouds tell a machine its secrets, as far as it is no special-purpose address: Azure.

The others use link-local, shared, unique local or protocol addresses, which are not public anyway.
"""

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_SAFE: Final = "%/:=&?~#+!$,;'@()*[]|"
"""What stays as it is in a path and a query: signs that mean something, and what is escaped."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class WebAddress(NamedTuple):
    """Where a page is: `target` is its path and query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The server: its name, and its port if that says something."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_address(text: str) -> WebAddress:
    """Return what a URL means; raises `ToolFailure` for one that is not asked."""
    if len(text) > URL_CHARS_MAX:
        raise ToolFailure(f"The URL has more than {URL_CHARS_MAX} characters.")
    try:
        url = urlsplit(text.strip())
        host, port = _host(url.hostname or ""), url.port
    except (ValueError, UnicodeError):
        raise ToolFailure(f"{_shown(text)} is no URL.") from None
    if url.scheme not in PORTS or not host:
        raise ToolFailure(f"{_shown(text)} is no URL that begins with http:// or https://.")
    if url.username is not None or url.password is not None:
        raise ToolFailure("A URL with a user's name or password in it is not fetched.")
    if port == 0:
        raise ToolFailure(f"{_shown(text)} names the port 0, which no server has.")
    return WebAddress(url.scheme, host, port or PORTS[url.scheme], _target(url))


def redirected(address: WebAddress, location: str) -> WebAddress:
    """Return where a redirect leads; raises `ToolFailure`."""
    try:
        return parse_address(urljoin(str(address), location))
    except ValueError:
        raise ToolFailure(f"{address} redirects to {_shown(location)}, which is no URL.") from None


def is_same_server(one: WebAddress, other: WebAddress) -> bool:
    """Whether leave to ask `one` is leave to ask `other`: the same host and port, no less safe.

    The usual ports of http and https are one server, as they are to who was asked.
    """
    return one.authority == other.authority and (one.scheme, other.scheme) != ("https", "http")


def is_public(address: IpAddress) -> bool:
    """Whether a machine with this address is on the public internet, so far as can be told."""
    inner = _embedded(address)
    if inner is not None:
        return is_public(inner)
    if address in _METADATA or any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and (address.version == 4 or address in _PUBLIC_V6)


def any_address(address: IpAddress) -> bool:  # noqa: ARG001
    """Say yes to all addresses."""
    return True


def address_in(host: str) -> IpAddress | None:
    """Return the address that a host's name is; None for a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _embedded(address: IpAddress) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


def _host(name: str) -> str:
    """A name as it is sent and matched against rules: in ASCII, so that none looks like another."""
    if not name or address_in(name):
        return name
    plain = name.rstrip(".").encode("idna").decode()
    if any(not (sign.isalnum() or sign in "-._") for sign in plain):
        raise ValueError(name)
    return plain.lower()


def _target(url: SplitResult) -> str:
    path = quote(url.path or "/", safe=_SAFE)
    return f"{path}?{quote(url.query, safe=_SAFE)}" if url.query else path


def _shown(text: str) -> str:
    return repr(text[:200])
