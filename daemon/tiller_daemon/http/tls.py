"""TLS over another wire, and the certificates that are trusted.

`trio.SSLStream` would be slower: it passes through the scheduler for each record, and servers send
every delta in a record of its own.
"""

import os
import re
import ssl
import sys
from pathlib import Path
from typing import Final

from tiller_daemon.http.failures import Broken, ConnectFailed
from tiller_daemon.http.wire import RECEIVE_BYTES_MAX, Wire

ENCRYPTED_BYTES: Final = 256 * 1024
"""How much of a request is encrypted at a time, before it is sent."""

CA_FILES: Final = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""Where Linux distributions keep certificates; needed if OpenSSL was built for another one."""

_HASHED: Final = re.compile(r"[0-9a-fA-F]{8}\.\d")


class TlsWire(Wire):
    """An encrypted wire. It owns the wire below, which carries the encrypted bytes."""

    def __init__(self, below: Wire, context: ssl.SSLContext, host: str) -> None:
        self._below = below
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._failure: ssl.SSLError | None = None
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        except ValueError as error:
            raise ConnectFailed(str(error)) from error

    async def shake_hands(self) -> None:
        """Agree on keys, and check the certificate. Raises `ConnectFailed`."""
        try:
            while True:
                try:
                    self._tls.do_handshake()
                except ssl.SSLWantReadError:
                    await self._flush()
                    await self._receive_encrypted()
                else:
                    # The last message goes out with the first request.
                    return
        except (ssl.SSLError, Broken) as error:
            raise ConnectFailed(str(error)) from error

    async def receive(self) -> bytes:
        """Return the data of all records that have arrived; see `Wire`."""
        pieces: list[bytes] = []
        ended = False
        if self._failure is not None:
            raise Broken(str(self._failure)) from self._failure
        while True:
            try:
                # One call returns one record at most.
                while piece := self._tls.read(RECEIVE_BYTES_MAX):
                    pieces.append(piece)
                ended = True
            except ssl.SSLWantReadError:
                pass
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                # Many servers close the connection without the closing message of TLS.
                ended = True
            except ssl.SSLError as error:
                # Keep the error: on the next call, OpenSSL would only report an end.
                self._failure = error
                if not pieces:
                    raise Broken(str(error)) from error
            if pieces or ended:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            # A reply to a key update may go out with the next request.
            await self._receive_encrypted()

    async def send(self, data: bytes | memoryview) -> None:
        """Send all of `data`; see `Wire`."""
        rest = memoryview(data)
        while rest:
            piece, rest = rest[:ENCRYPTED_BYTES], rest[ENCRYPTED_BYTES:]
            try:
                while piece:
                    piece = piece[self._tls.write(piece) :]
            except ssl.SSLError as error:
                raise Broken(str(error)) from error
            await self._flush()

    def is_quiet(self) -> bool:
        """Whether nothing has arrived, not even the end of the connection."""
        return self._incoming.pending == 0 and self._below.is_quiet()

    def close(self) -> None:
        """Close the wire below."""
        self._below.close()

    async def _receive_encrypted(self) -> None:
        data = await self._below.receive()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._below.send(self._outgoing.read())


def make_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts the system's certificates and those in `ca_file`.

    `SSL_CERT_FILE` or `SSL_CERT_DIR` replaces the system's certificates. Loading takes up to 50 ms.
    Raises `OSError`.
    """
    context = _system_context()
    context.set_alpn_protocols(["http/1.1"])
    # A new handshake would have to write while we read.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context


def _system_context() -> ssl.SSLContext:
    if file := os.environ.get("SSL_CERT_FILE"):
        return ssl.create_default_context(cafile=file)
    if directory := os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context(capath=directory)
    if sys.platform == "darwin":
        import truststore

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    paths = ssl.get_default_verify_paths()
    file = paths.openssl_cafile if Path(paths.openssl_cafile).is_file() else None
    directory = paths.openssl_capath if _holds_certificates(paths.openssl_capath) else None
    if not file and not directory:
        file = next((one for one in CA_FILES if Path(one).is_file()), None)
    if file or directory:
        context.load_verify_locations(file, directory)
    return context


def _holds_certificates(directory: str) -> bool:
    place = Path(directory)
    return place.is_dir() and any(_HASHED.fullmatch(one.name) for one in place.iterdir())
