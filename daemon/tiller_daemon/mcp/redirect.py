"""Ends a login in a browser, by a redirect to a port on this machine or by the pasted address.

The port is open only while somebody logs in. A request has an effect only with the `state` of this
login, which no other page knows.
"""

import hmac
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import trio

PATH: Final = "/callback"

HEAD_BYTES_MAX: Final = 16 * 1024
REQUEST_S_MAX: Final = 10.0
"""Limits for one request: browsers also open connections on which they send nothing."""

DONE: Final = "You can close this page and return to tiller."
UNKNOWN: Final = "This is not the address of a login in progress."


async def open_listener(port: int = 0) -> tuple[trio.SocketListener, str]:
    """Return a listener on a port of the loopback interface, and the redirect's address.

    Port 0 means any free port. Raises `OSError`.
    """
    (listener,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    return listener, f"http://127.0.0.1:{port}{PATH}"


async def receive_redirect(listener: trio.SocketListener, state: str) -> dict[str, str]:
    """Wait for the redirect with this `state` and return its parameters; closes the listener."""
    found: dict[str, str] = {}
    async with trio.open_nursery() as nursery:

        async def answer(stream: trio.SocketStream) -> None:
            with trio.move_on_after(REQUEST_S_MAX):
                parameters = _parameters_of(await _read_head(stream))
                is_ours = _is_of(parameters, state)
                await _send(stream, "200 OK" if is_ours else "404 Not Found", is_ours=is_ours)
                if is_ours:
                    found.update(parameters)
                    nursery.cancel_scope.cancel()

        await trio.serve_listeners(answer, [listener], handler_nursery=nursery)
    return found


def read_pasted(text: str, state: str) -> dict[str, str] | None:
    """Return the parameters of a pasted address or code; None if it belongs to another login."""
    text = text.strip()
    if "://" not in text and "=" not in text:
        return {"code": text, "state": state} if text else None
    parameters = dict(parse_qsl(urlsplit(text).query or text.lstrip("?")))
    return parameters if _is_of(parameters, state) else None


def _is_of(parameters: dict[str, str], state: str) -> bool:
    return hmac.compare_digest(parameters.get("state", "").encode(), state.encode())


def _parameters_of(head: bytes) -> dict[str, str]:
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(words) != 3 or words[0] != "GET":
        return {}
    try:
        target = urlsplit(words[1])
    except ValueError:
        return {}
    return dict(parse_qsl(target.query)) if target.path == PATH else {}


async def _read_head(stream: trio.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < HEAD_BYTES_MAX:
        piece = await stream.receive_some(HEAD_BYTES_MAX)
        if not piece:
            break
        head += piece
    return head


async def _send(stream: trio.SocketStream, status: str, *, is_ours: bool) -> None:
    body = (DONE if is_ours else UNKNOWN).encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
    )
    # If the browser does not wait for the page, its parameters have arrived nevertheless.
    with suppress(trio.BrokenResourceError):
        await stream.send_all(head.encode() + body)
