"""The port at which a login waits for the browser."""

import contextlib
import socket
import threading
import urllib.error
import urllib.request

import pytest

from tiller_client import browser_login
from tiller_client.browser_login import RedirectListener

STATE = "s" * 43


def get(listener: RedirectListener, path: str) -> tuple[int, str]:
    address = f"http://127.0.0.1:{listener.port}{path}"
    try:
        with urllib.request.urlopen(address, timeout=10) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_where_another_program_has_the_port_another_port_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(browser_login, "PORTS", (port, 0))
        with contextlib.closing(RedirectListener.open()) as listener:
            assert listener.port not in (0, port)
            assert listener.server_address[0] == "127.0.0.1"


def test_only_the_redirect_of_this_login_arrives(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(browser_login, "PORTS", (0, 0))
    good = f"/auth/callback?code=canary&state={STATE}"
    with contextlib.closing(RedirectListener.open()) as listener:
        assert get(listener, good)[0] == 404, "no login is in progress yet"
        listener.state = STATE
        for wrong in ("/", good.replace("/auth", ""), good[:-1], "/auth/callback"):
            assert get(listener, wrong)[0] == 404
        # A browser may open a connection on which it sends nothing.
        with socket.create_connection(("127.0.0.1", listener.port)):
            pages: list[tuple[int, str]] = []
            browser = threading.Thread(target=lambda: pages.append(get(listener, good)))
            browser.start()
            arrival = listener.arrivals.get(timeout=10)
            assert arrival.page
            arrival.page.put("done")
            browser.join()
        assert pages == [(200, "done\n")]
        assert arrival.address.endswith(good)
    with pytest.raises(urllib.error.URLError):
        get(listener, good)
    assert "canary" not in "".join(capfd.readouterr())
