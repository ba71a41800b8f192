"""A connection between two machines that is slow, or passes nothing until it is told to."""

import socket
import threading
import time
from contextlib import suppress
from queue import SimpleQueue
from typing import Self

CHUNK_BYTES = 65_536


class SlowLink:
    """Forwards the connections to a port of this machine; a context manager.

    Each byte arrives `delay_s` after it was sent. While the link is held, none arrives.
    """

    def __init__(self, port: int) -> None:
        self.delay_s = 0.0
        self._target = port
        self._passes = threading.Event()
        self._passes.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def hold(self) -> None:
        """Let nothing arrive."""
        self._passes.clear()

    def release(self) -> None:
        """Let everything arrive that was held."""
        self._passes.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except ConnectionRefusedError:
                    near.close()
                    continue
                self._sockets += [near, far]
                self._forward(near, far)
                self._forward(far, near)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        pending = SimpleQueue[tuple[float, bytes]]()

        def read() -> None:
            data = b"-"
            while data:
                try:
                    data = source.recv(CHUNK_BYTES)
                except OSError:
                    data = b""
                pending.put((time.monotonic() + self.delay_s, data))

        def write() -> None:
            with suppress(OSError):
                while True:
                    due, data = pending.get()
                    self._passes.wait()
                    time.sleep(max(0.0, due - time.monotonic()))
                    if not data:
                        break
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        for work in (read, write):
            threading.Thread(target=work, daemon=True).start()
