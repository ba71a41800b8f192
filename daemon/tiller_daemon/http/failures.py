"""The failures of a request. Each message gives the reason, without advice to the user."""


class HttpFailure(Exception):
    """Any failure of a request. Apart from bugs, requests raise no other exceptions."""


class ConnectFailed(HttpFailure):
    """No connection: the name is unknown, no server answers, or the TLS handshake failed."""


class ConnectTimedOut(HttpFailure):
    """No connection within the time limit, which includes proxies and TLS."""


class InvalidAddress(HttpFailure):
    """A host name that can't exist."""


class NotPermitted(HttpFailure):
    """None of the host's addresses may be reached. The message is the name of the host."""


class ProxyFailed(HttpFailure):
    """The proxy was reached, but refused or failed to connect to the server.

    `rejects_credentials` says that the user name or the password is wrong or missing.
    """

    def __init__(self, reason: str, *, rejects_credentials: bool = False) -> None:
        super().__init__(reason)
        self.rejects_credentials = rejects_credentials


class WriteTimedOut(HttpFailure):
    """The server did not accept the request in time."""


class ReadTimedOut(HttpFailure):
    """The server sent nothing in time."""


class Broken(HttpFailure):
    """The connection broke, or the response is not valid HTTP.

    `has_begun` is False if the request failed before any byte of the response arrived.
    """

    def __init__(self, reason: str, *, has_begun: bool = True) -> None:
        super().__init__(reason)
        self.has_begun = has_begun
