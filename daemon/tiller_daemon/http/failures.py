"""What goes wrong with a request. The message is the reason, without advice to the user."""


class HttpFailure(Exception):
    """Any failure of a request. Nothing else leaves this package, apart from bugs."""


class ConnectFailed(HttpFailure):
    """No connection: the name is unknown, nobody answers, or TLS was not agreed on."""


class ConnectTimedOut(HttpFailure):
    """No connection within the limit, proxies and TLS included."""


class InvalidAddress(HttpFailure):
    """A host name that can't exist."""


class NotPermitted(HttpFailure):
    """A host that only has addresses which must not be reached; the message is its name."""


class ProxyFailed(HttpFailure):
    """A proxy that was reached refuses, or fails to make the connection.

    `rejects_credentials` says that the user name or the password is wrong, or missing.
    """

    def __init__(self, reason: str, *, rejects_credentials: bool = False) -> None:
        super().__init__(reason)
        self.rejects_credentials = rejects_credentials


class WriteTimedOut(HttpFailure):
    """The server does not take the request."""


class ReadTimedOut(HttpFailure):
    """The server sends nothing."""


class Broken(HttpFailure):
    """The connection broke, or what arrived is not HTTP.

    `has_begun` is False if the request failed before any byte of the response.
    """

    def __init__(self, reason: str, *, has_begun: bool = True) -> None:
        super().__init__(reason)
        self.has_begun = has_begun
