"""`fetch`: what a page becomes, and which machines are never asked (real servers, real names)."""

import base64
import gc
import gzip
import socket
import time
import zlib
from ipaddress import ip_address

import pytest
import trio
import trio.lowlevel
from hypothesis import given
from hypothesis import strategies as st

from support.certificates import certificate
from support.each import each
from support.http_server import raw, serving, status, wait_closed
from support.pdfs import pdf
from support.proxy import proxying
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.web.address import is_public, is_same_server, parse_address
from tiller_daemon.tools.web.page import BODY_BYTES_MAX, REDIRECTS_MAX, get_page

__all__ = ["certificate"]

STALL_S_MAX = 0.5
"""How much CPU the loop may use at one go: more than it does, less than such a page takes."""

BEHIND_BYTES = 100_000_000
"""What a server sends behind the end of a page; the sockets hold a small part of it."""

HTML = {"Content_Type": "text/html; charset=utf-8"}
TEXT = {"Content_Type": "text/plain"}

PAGE = """<!doctype html><title>T</title><script>alert(1)</script><style>a {}</style>
<h1>Größe</h1><p>See <a href="/next?a=1">the <b>next</b></a>.<pre><code>x = 1
  y</code></pre><img alt="a dot" src="data:image/png;base64,iVBORw0KGgo="><ul><li>one<li>two</ul>"""


@pytest.fixture
def near(bench):
    """A bench that may ask this machine."""
    bench.private_addresses = True
    return bench


async def refused(bench, url: str) -> str:
    with pytest.raises(ToolFailure) as failure:
        await bench.call("fetch", url=url)
    return str(failure.value)


async def test_html_becomes_markdown_with_whole_links(near):
    async with serving(status(200, PAGE.encode(), **HTML)) as server:
        url = f"http://127.0.0.1:{server.port}/docs/?q=a b"
        result = await near.call("fetch", url=url)
    assert result.title == f"http://127.0.0.1:{server.port}/docs/?q=a%20b"
    assert result.output.startswith(f"{result.title} (text/html):\n\n# Größe\n")
    assert f"[the **next**](http://127.0.0.1:{server.port}/next?a=1)" in result.output
    assert "```\nx = 1\n  y\n```" in result.output
    assert "- one\n- two" in result.output
    assert "a dot" in result.output
    assert not any(word in result.output for word in ("alert", "a {}", "base64"))


async def test_a_pdf_becomes_text(near):
    async with serving(
        status(200, pdf("Hello"), Content_Type="application/pdf"),
        status(200, b"%PDF-1.7 no more", Content_Type="application/pdf"),
    ) as server:
        url = f"http://127.0.0.1:{server.port}/a"
        assert "[Page 1]\nHello\n" in (await near.call("fetch", url=url)).output
        assert await refused(near, url) == f"The PDF at {url} can't be shown. It is broken: " + (
            "Stream has ended unexpectedly."
        )


HOSTILE = {
    "deep": b"<div>" * 1_000_000,
    "tables": b"<table><tr><td>" * 300_000,
    "links": b"<a href=x>" * 500_000,
    "comments": b"<!--" * 1_000_000,
    "signs": b"&amp;" * 1_000_000,
    "no text": bytes(range(256)) * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.nightly
@pytest.mark.promise("B59")
async def test_a_hostile_page_holds_nobody_up(near, name):
    """A page that takes the library long, or breaks it, is the business of a process apart."""
    longest_s = 0.0

    async def watch() -> None:
        nonlocal longest_s
        while True:
            before = time.thread_time()
            await trio.sleep(0.005)
            longest_s = max(longest_s, time.thread_time() - before)

    async with (
        serving(status(200, HOSTILE[name], **HTML)) as server,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(watch)
        result = await near.call("fetch", url=f"http://127.0.0.1:{server.port}/{'x' * 4000}")
        nursery.cancel_scope.cancel()
    assert len(result.output.encode()) < 60_000
    assert longest_s < STALL_S_MAX


async def test_nothing_is_sent_that_says_who_asks(near):
    """G13."""
    answers = [
        status(302, Location="/there", Set_Cookie="session=1; Path=/"),
        status(200, b"x", **TEXT),
    ]
    async with serving(*answers) as server:
        await near.call("fetch", url=f"http://127.0.0.1:{server.port}/a#part")
    assert [one.path for one in server.received] == ["/a", "/there"]
    for one in server.received:
        assert sorted(one.headers) == ["accept", "accept-encoding", "host", "user-agent"]


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain", "Größe\n".encode(), "Größe\n"),
        ("text/plain; charset=latin-1", "Größe".encode("latin-1"), "Größe"),
        ('text/plain; charset="utf-16"', "Größe".encode("utf-16"), "Größe"),
        ("text/plain; charset=no-such", "Größe".encode(), "Größe"),
        ("text/plain; charset=punycode", b"a-b", "a-b"),
        ("text/plain", b"\xef\xbb\xbfa\xff", "a\ufffd"),
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("application/vnd.api+json", b"{}", "{}"),
        ("text/x-python", b"<b>x</b>", "<b>x</b>"),
        ("text/html", "<meta charset=latin-1><p>Größe".encode("latin-1"), "Größe"),
        ("text/html; charset=ISO-8859-1", "<p>“quotes”".encode("cp1252"), "“quotes”"),
        ("text/plain; charset=us-ascii", b"5 \x80", "5 €"),
        ("text/html", "<p>sechzehn ü".encode("utf-16"), "sechzehn ü"),
        ("text/plain", "ü".encode("utf-16-be").join((b"\xfe\xff", b"")), "ü"),
        ("text/plain; charset=latin-1", b"\xef\xbb\xbf" + "ü".encode(), "ü"),
        (
            "application/xml",
            "<?xml version='1.0' encoding='iso-8859-1'?><a>é</a>".encode("latin-1"),
            "<?xml version='1.0' encoding='iso-8859-1'?><a>é</a>",
        ),
        ("text/html", "<meta charset=utf-16><p>ü".encode(), "ü"),
        ("text/html", b"", "(The page has no text.)"),
    ],
)
async def test_text_comes_in_the_character_set_that_it_is_in(near, kind, body, text):
    async with serving(status(200, body, Content_Type=kind)) as server:
        result = await near.call("fetch", url=f"http://127.0.0.1:{server.port}/")
    assert result.output.partition("):\n\n")[2] == text


@pytest.mark.parametrize(
    ("headers", "body", "problem"),
    [
        ({"Content_Type": "image/png"}, b"\x89PNG", "is image/png, not text"),
        ({"Content_Type": "application/zip"}, b"PK", "is application/zip, not text"),
        ({}, b"\0\1", "is binary, not text"),
        (TEXT, b"a\0b", "is binary, not text"),
        (TEXT | {"Content_Encoding": "br"}, b"x", "answers with the encoding 'br', which was not"),
        (TEXT | {"Content_Encoding": "gzip"}, b"no gzip", "can't be fetched: Error -3"),
    ],
)
async def test_what_is_no_text_is_not_fetched(near, headers, body, problem):
    async with serving(status(200, body, **headers)) as server:
        assert problem in await refused(near, f"http://127.0.0.1:{server.port}/")


async def test_packed_pages_are_unpacked_and_bombs_are_not(near):
    bomb = gzip.compress(bytes(100 * 1024 * 1024).replace(b"\0", b"a"))
    answers = [
        status(200, gzip.compress(b"packed"), Content_Encoding="gzip", **TEXT),
        status(200, zlib.compress(b"packed"), Content_Encoding="deflate", **TEXT),
        status(200, bomb, Content_Encoding="gzip", **TEXT),
    ]
    async with serving(*answers) as server:
        url = f"http://127.0.0.1:{server.port}/"
        for _ in range(2):
            assert (await near.call("fetch", url=url)).output.endswith("\n\npacked")
        result = await near.call("fetch", url=url)
    assert "the first 5 MiB of it" in result.output
    assert len(near.spilled(result)) < BODY_BYTES_MAX + 1000


async def test_nothing_is_read_behind_the_end_of_a_packed_page(near):
    """A server that goes on sending behind it costs neither memory nor time."""
    sent = 0

    async def endless(stream: trio.abc.Stream) -> None:
        nonlocal sent
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n"
        await stream.send_all(head + gzip.compress(b"packed"))
        while sent < BEHIND_BYTES:
            await stream.send_all(bytes(65536))
            sent += 65536

    async with serving(endless) as server:
        result = await near.call("fetch", url=f"http://127.0.0.1:{server.port}/")
    assert result.output.endswith("\n\npacked")
    assert sent < BEHIND_BYTES


async def test_a_page_without_end_is_read_up_to_the_limit(near):
    async def endless(stream: trio.abc.Stream) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            await stream.send_all(b"abcdefg\n" * 8192)

    async with serving(endless) as server:
        result = await near.call("fetch", url=f"http://127.0.0.1:{server.port}/")
    assert "the first 5 MiB of it" in result.output
    assert len(near.spilled(result)) == pytest.approx(BODY_BYTES_MAX, abs=1000)


async def test_an_error_is_said_with_its_page(near):
    answers = [
        status(404, b"<h1>No such page</h1>", **HTML),
        status(503, b"\0", Content_Type="image/png"),
        status(299, b"odd", **TEXT),
        status(599, b"odd", **TEXT),
    ]
    async with serving(*answers) as server:
        url = f"http://127.0.0.1:{server.port}/"
        assert await refused(near, url) == f"{url} answers 404 Not Found. It says:\n# No such page"
        assert await refused(near, url) == f"{url} answers 503 Service Unavailable."
        assert (await near.call("fetch", url=url)).output.endswith("odd")
        assert await refused(near, url) == f"{url} answers 599. It says:\nodd"


async def test_redirects_are_followed_on_the_same_server_only(near):
    answers = [
        status(301, Location="b"),
        status(307, Location="/c/d"),
        status(200, b"here", **TEXT),
        status(302, Location="http://example.com/x?y"),
    ]
    async with serving(*answers) as server:
        url = f"http://127.0.0.1:{server.port}"
        result = await near.call("fetch", url=f"{url}/a/a")
        assert [one.path for one in server.received] == ["/a/a", "/a/b", "/c/d"]
        assert result.title == f"{url}/c/d"
        problem = await refused(near, url)
    assert problem == f"{url}/ redirects to http://example.com/x?y. Fetch that if you need it."


async def test_a_redirect_to_another_port_of_the_host_is_not_followed(near):
    """What was approved is a host and a port: another port of it is another server."""
    async with serving(status(200, b"secret", **TEXT)) as other:
        elsewhere = f"http://127.0.0.1:{other.port}/x"
        async with serving(status(302, Location=elsewhere)) as server:
            url = f"http://127.0.0.1:{server.port}/"
            problem = await refused(near, url)
    assert problem == f"{url} redirects to {elsewhere}. Fetch that if you need it."
    assert other.connections == 0


@each(
    ("one", "other", "same"),
    [
        ("http://h/a", "http://h/b", True),
        ("http://h/", "https://h/", True),
        ("http://h:80/", "https://h:443/", True),
        ("http://h:8080/", "https://h:8080/", True),
        ("https://h/", "http://h/", False),
        ("https://h:8443/", "http://h:8443/", False),
        ("http://h/", "http://h:8080/", False),
        ("http://h/", "https://h:8443/", False),
        ("http://h/", "http://h:443/", False),
        ("https://h/", "https://h:80/", False),
        ("http://h/", "http://www.h/", False),
    ],
)
def test_a_server_is_a_host_and_a_port_and_what_is_encrypted_stays_so(one, other, same):
    assert is_same_server(parse_address(one), parse_address(other)) is same


async def test_redirects_in_circles_end(near):
    async with serving(status(302, Location="/again")) as server:
        problem = await refused(near, f"http://127.0.0.1:{server.port}/")
    assert f"redirects more than {REDIRECTS_MAX} times" in problem
    assert len(server.received) == REDIRECTS_MAX + 1


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://u:p@127.0.0.1/", "http://[/"])
async def test_a_redirect_to_what_is_not_fetched_is_refused(near, location):
    async with serving(status(302, Location=location)) as server:
        problem = await refused(near, f"http://127.0.0.1:{server.port}/")
    assert "not fetched" in problem or "is not a URL" in problem


async def test_a_server_that_says_nothing_or_nonsense_is_said(near, autojump_clock):
    autojump_clock.autojump_threshold = 1.0  # certificates are read in a thread meanwhile
    async with serving(wait_closed, raw(b"nonsense\r\n\r\n"), raw(b"")) as server:
        url = f"http://127.0.0.1:{server.port}/"
        assert await refused(near, url) == f"{url} does not answer."
        assert f"{url} can't be fetched: " in await refused(near, url)
        assert f"{url} can't be fetched: " in await refused(near, url)
    assert f"{url} can't be fetched: " in await refused(near, url)


async def test_an_encrypted_page_shows_its_certificate_or_is_not_fetched(near, certificate):
    async with serving(status(200, b"x", **TEXT), tls=certificate.server) as server:
        problem = await refused(near, f"https://localhost:{server.port}/")
    assert "CERTIFICATE_VERIFY_FAILED" in problem
    assert server.received == []


async def test_an_encrypted_page_comes_when_its_certificate_is_trusted(
    near, certificate, monkeypatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    async with serving(status(200, b"x", **TEXT), tls=certificate.server) as server:
        result = await near.call("fetch", url=f"https://localhost:{server.port}/")
    assert result.output.endswith("\n\nx")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "localhost",
        "localhost.", "LOCALHOST", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "127.0.0.1.", "①②⑦.0.0.1",
    ],
)  # fmt: skip
async def test_this_machine_is_not_asked_however_it_is_called(bench, host):
    async with serving(status(200, b"secret", **TEXT)) as server:
        problem = await refused(bench, f"http://{host}:{server.port}/")
    assert "secret" not in problem
    assert server.connections == 0


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.1.2.3",
        "224.0.0.1", "240.0.0.1", "255.255.255.255", "fe80::1", "fc00::1", "fd12::1", "ff02::1",
        "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "::", "198.18.0.1", "192.0.2.1",
        "2001:db8::1", "192.0.0.1", "192.0.0.8", "192.0.0.171", "192.88.99.1",
        "239.255.255.250", "fec0::1", "feff::1", "fe80::a9fe:a9fe", "64:ff9b:1::1", "100::1",
        "2001::1", "2001:2::1", "2001:10::1", "2001:20::1", "3fff::1", "5f00::1", "::a00:1",
        "4000::1",
    ],
)  # fmt: skip
async def test_what_is_not_on_the_public_internet_is_not_asked(bench, address):
    assert not is_public(ip_address(address))
    host = f"[{address}]" if ":" in address else address
    assert "is not on the public internet" in await refused(bench, f"http://{host}/")


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",  # AWS, Google, Azure, Oracle, DigitalOcean, IBM, Hetzner, OpenStack
        "169.254.170.2", "169.254.170.23",  # containers at AWS
        "169.254.0.23", "169.254.42.42",  # Tencent, Scaleway
        "168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110", "2002:a83f:8110::1",  # Azure
        "192.0.0.192",  # Oracle
        "100.100.100.200",  # Alibaba
        "fd00:ec2::254", "fd00:ec2::23",  # AWS
        "fd20:ce::254",  # Google
        "fd00:c1::a9fe:a9fe",  # Oracle
        "fd00:42::42",  # Scaleway
    ],
)  # fmt: skip
async def test_where_clouds_tell_machines_their_secrets_is_not_asked(bench, address):
    host = f"[{address}]" if ":" in address else address
    assert "is not on the public internet" in await refused(
        bench, f"http://{host}/latest/meta-data"
    )


@each(
    "address",
    [
        "1.1.1.1", "93.184.215.14", "168.63.129.15", "192.0.1.1", "192.31.196.1", "223.255.255.255",
        "2606:4700::1111", "2a00:1450::1", "2001:4860::1", "2620:4f:8000::1", "64:ff9b::101:101",
        "2002:101:101::1",
    ],
)  # fmt: skip
def test_what_is_public_may_be_asked(address):
    assert is_public(ip_address(address))


class Resolver(trio.abc.HostnameResolver):
    """Names that mean something else each time they are looked up."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):  # noqa: A002
        if host in (b"127.0.0.1", "127.0.0.1", b"127.0.0.2", "127.0.0.2"):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (_text(host), port))]
        await trio.lowlevel.checkpoint()
        addresses = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]

    async def getnameinfo(self, sockaddr, flags):
        raise NotImplementedError


def _text(host: bytes | str) -> str:
    return host.decode() if isinstance(host, bytes) else host


def only_first(address) -> bool:
    """Take 127.0.0.1 for public, and the rest of this machine not."""
    return str(address) == "127.0.0.1"


async def test_a_name_that_means_another_machine_a_moment_later_leads_nowhere_else():
    """The first look decides, and the connection goes where it said: to no other address."""
    resolver = Resolver(["127.0.0.1"], ["127.0.0.2"])
    trio.socket.set_custom_hostname_resolver(resolver)
    async with serving(status(200, b"good", **TEXT)) as server:
        page = await get_page(parse_address(f"http://rebind.test:{server.port}/"), {}, only_first)
        assert (page.body, resolver.asked) == (b"good", 1)
        with pytest.raises(ToolFailure, match=r"rebind\.test is not on the public internet"):
            await get_page(parse_address(f"http://rebind.test:{server.port}/"), {}, only_first)
    assert server.connections == 1


async def test_each_redirect_is_checked_anew():
    resolver = Resolver(["127.0.0.1"], ["127.0.0.2"])
    trio.socket.set_custom_hostname_resolver(resolver)
    answers = (status(302, Location="/secret"), status(200, b"secret", **TEXT))
    async with serving(*answers) as server:
        with pytest.raises(ToolFailure, match=r"rebind\.test is not on the public internet"):
            await get_page(parse_address(f"http://rebind.test:{server.port}/"), {}, only_first)
    assert (server.connections, resolver.asked) == (1, 2)


async def test_of_many_addresses_only_good_ones_are_connected_to():
    resolver = Resolver(["127.0.0.2", "127.0.0.1"])
    trio.socket.set_custom_hostname_resolver(resolver)
    async with serving(status(200, b"good", **TEXT)) as server:
        page = await get_page(parse_address(f"http://many.test:{server.port}/"), {}, only_first)
    assert page.body == b"good"


@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_the_proxy_of_the_environment_is_used_and_looks_names_up(bench, kind):
    async with serving(status(200, b"x", **TEXT)) as server, proxying(kind) as proxy:
        page = await get_page(
            parse_address(f"http://page.test:{server.port}/a"),
            {"http_proxy": proxy.address(kind)},
            is_public,
        )
        with pytest.raises(ToolFailure, match="is not on the public internet"):
            await get_page(
                parse_address(f"http://10.0.0.1:{server.port}/"),
                {"http_proxy": proxy.address(kind)},
                is_public,
            )
    assert page.body == b"x"
    assert len(proxy.asked) == 1
    assert f"page.test:{server.port}" in proxy.asked[0]


@pytest.mark.parametrize("kind", ["http", "socks5"])
@pytest.mark.promise("G13")
async def test_a_password_of_the_proxy_is_not_in_what_is_said_of_its_failure(kind):
    """A proxy that refuses it, and one that repeats it, as it was written and as it was sent."""
    page = parse_address("https://page.test/a")
    packed = base64.b64encode(b"user:s3cret-word").decode()
    echo = raw(f"HTTP/1.1 407 no user:s3cret-word {packed}\r\n\r\n".encode())
    async with proxying(kind, wants="else") as proxy, serving(echo) as server:
        refusing = {"https_proxy": proxy.address(kind, "user:s3cret-word")}
        with pytest.raises(
            ToolFailure, match=rf"the proxy {proxy.address(kind)} answers"
        ) as refusal:
            await get_page(page, refusing, is_public)
        repeating = {"https_proxy": f"http://user:s3cret-word@127.0.0.1:{server.port}"}
        with pytest.raises(ToolFailure, match=r"407 no \[secret\] ") as repeated:
            await get_page(page, repeating, is_public)
    told = (str(refusal.value), str(repeated.value))
    del refusal, repeated
    for problem in told:
        assert "s3cret" not in problem
        assert packed[4:-4] not in problem
    gc.collect()  # shows a connection that nobody has closed


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://h/", "is not a URL that begins with http"),
        ("file:///etc/passwd", "is not a URL that begins with http"),
        ("example.com", "is not a URL that begins with http"),
        ("", "is not a URL that begins with http"),
        ("http:///x", "is not a URL that begins with http"),
        ("http://h:0/", "has the port 0"),
        ("http://h:99999/", "is not a URL"),
        ("http://[::1", "is not a URL"),
        ("http://a b/", "is not a URL"),
        ("http://a*b/", "is not a URL"),
        ("http://u:p@h/", "user name or password"),
        ("http://h/" + "x" * 9000, "more than 8000 characters"),
    ],
)
def test_what_is_not_fetched_is_said_before_anybody_is_asked(bench, url, problem):
    with pytest.raises(ToolFailure, match=problem):
        bench.requirements("fetch", url=url)


def test_a_question_is_about_the_server_and_shows_the_address(bench):
    (need,) = bench.requirements("fetch", url="https://Docs.Python.org/3/?q=ä#x")
    assert (need.permission, need.subjects, need.always) == (
        "fetch", ("docs.python.org",), ("docs.python.org",)
    )  # fmt: skip
    assert need.detail == "https://docs.python.org/3/?q=%C3%A4"
    (need,) = bench.requirements("fetch", url="https://bücher.example:8443")
    assert need.subjects == ("xn--bcher-kva.example:8443",)
    (need,) = bench.requirements("fetch", url="http://[2606:4700::1111]:80/")
    assert need.subjects == ("[2606:4700::1111]",)


async def test_a_url_with_a_key_in_it_is_not_fetched(near):
    """G13."""
    near.secrets = ("sk-secret",)
    assert "contains a key" in await refused(near, "http://127.0.0.1/?k=sk-secret")


@given(
    st.text(max_size=40), st.sampled_from(["", "http://", "https://h/", "http://h:", "http://["])
)
def test_any_text_is_an_address_of_the_web_or_is_refused(text, beginning):
    try:
        address = parse_address(beginning + text)
    except ToolFailure:
        return
    assert address.scheme in ("http", "https")
    assert str(address).isascii()
    assert not any(sign in str(address) for sign in "\r\n\t \0")
    assert parse_address(str(address)) == address
