"""The proxy of a server: variables, exceptions, and none for this machine."""

import pytest

from support.each import each
from tiller_daemon.config.http_proxy import parse_proxy, proxy_of_environment

P = "http://p:3128"


def chosen(url: str, **variables: str) -> str:
    scheme, _, rest = url.partition("://")
    host, _, port = rest.rpartition(":")
    return str(proxy_of_environment(scheme, host, int(port), variables) or "")


@each(
    ("variables", "expected"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": P}, P),
        ({"https_proxy": P}, P),
        ({"https_proxy": P, "HTTPS_PROXY": "http://other:1"}, P),
        ({"https_proxy": "  ", "HTTPS_PROXY": P}, P),
        ({"HTTP_PROXY": P}, ""),
        ({"ALL_PROXY": P}, P),
        ({"all_proxy": "socks5h://s"}, "socks5://s:1080"),
        ({"ALL_PROXY": "http://other:1", "HTTPS_PROXY": P}, P),
        ({"HTTPS_PROXY": "p:3128"}, P),
        ({"HTTPS_PROXY": "https://p"}, "https://p:443"),
        ({"HTTPS_PROXY": P, "NO_PROXY": "*"}, ""),
        ({"HTTPS_PROXY": P, "no_proxy": "other, api.example.com"}, ""),
        ({"HTTPS_PROXY": P, "no_proxy": "other api.example.com"}, ""),
        ({"HTTPS_PROXY": P, "no_proxy": " other ,\texample.com "}, ""),
        ({"HTTPS_PROXY": P, "no_proxy": " , other"}, P),
        ({"HTTPS_PROXY": P, "NO_PROXY": "example.com"}, ""),
        ({"HTTPS_PROXY": P, "NO_PROXY": ".example.com"}, ""),
        ({"HTTPS_PROXY": P, "NO_PROXY": "*.example.com"}, ""),
        ({"HTTPS_PROXY": P, "NO_PROXY": "ample.com"}, P),
        ({"HTTPS_PROXY": P, "NO_PROXY": "example.com:443"}, ""),
        ({"HTTPS_PROXY": P, "NO_PROXY": "example.com:80"}, P),
        ({"HTTPS_PROXY": P, "NO_PROXY": "x.example.com,10.0.0.0/8,,"}, P),
    ],
)
def test_variables_name_the_proxy_of_a_server(variables: dict[str, str], expected: str) -> None:
    assert chosen("https://api.example.com:443", **variables) == expected


@each(
    ("url", "exception", "expected"),
    [
        ("http://10.1.2.3:8000", "10.0.0.0/8", ""),
        ("http://10.1.2.3:8000", "10.1.2.3", ""),
        ("http://11.1.2.3:8000", "10.0.0.0/8", P),
        ("http://fd00::1:8000", "fd00::/8", ""),
        ("http://fd00::1:8000", "[fd00::1]", ""),
        ("http://localhost:8000", "", ""),
        ("http://127.0.0.1:8000", "", ""),
        ("http://::1:8000", "", ""),
        ("http://0.0.0.0:8000", "", P),
    ],
)
def test_networks_are_excepted_and_this_machine_always_is(
    url: str, exception: str, expected: str
) -> None:
    assert chosen(url, HTTP_PROXY=P, NO_PROXY=exception) == expected


def test_a_proxy_shows_nothing_of_its_password() -> None:
    """G13."""
    proxy = parse_proxy("http://me:s%40cret@p:1")
    assert (proxy.user, proxy.password) == ("me", "s@cret")
    assert "cret" not in f"{proxy} {proxy!r} {[proxy]}"


@each("address", ["ftp://p", "http://", "http://p:x", "http://[", "socks4://p"])
def test_an_invalid_proxy_is_an_error_without_its_address(address: str) -> None:
    with pytest.raises(ValueError, match="the variable HTTPS_PROXY is not a valid") as caught:
        chosen("https://h:1", HTTPS_PROXY=address.replace("p", "s3cret"))
    assert "s3cret" not in str(caught.value)
