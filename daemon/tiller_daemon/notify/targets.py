"""Makes the target of a rule, with its key."""

import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from tiller_daemon.config import Notify
from tiller_daemon.config.http_proxy import proxies_of
from tiller_daemon.models.keys import Key, NoKey, find_key

if TYPE_CHECKING:
    from tiller_daemon.notify.delivery import Target


class Targets:
    """Makes targets, and keeps their keys."""

    def __init__(
        self,
        environ: Mapping[str, str],
        directory: Path,
        variables: Callable[[], Mapping[str, str]],
        secret_names: Callable[[], Collection[str]],
    ) -> None:
        """`environ` are the daemon's variables, which may name proxies.

        Programs run in `directory` with `variables`, and those that print keys, without the ones in
        `secret_names`.
        """
        self._environ = environ
        self._proxies = proxies_of(environ)
        self._directory = directory
        self._variables = variables
        self._secret_names = secret_names
        self._keys: dict[Notify, Key] = {}

    def make(self, rule: Notify) -> "Target":
        """Return the target of a rule."""
        # Most daemons have no rules, and start sooner without these.
        from tiller_daemon.notify.desktop import Desktop
        from tiller_daemon.notify.programs import Apprise, Command, MacDesktop
        from tiller_daemon.notify.web import Ntfy, Slack, Webhook

        key = self._keys[rule] = find_key(rule, self._environ, self._secret_names()) or NoKey()
        url = rule.url or ""
        match rule.to:
            case "desktop":
                if sys.platform == "darwin":
                    return MacDesktop(self._directory, self._variables)
                return Desktop(self._environ)
            case "ntfy":
                return Ntfy(url, key, self._proxies)
            case "slack":
                return Slack(url, key, self._proxies)
            case "webhook":
                return Webhook(url, key, self._proxies)
            case "apprise":
                return Apprise(key, self._directory, self._variables)
            case "command":
                return Command(rule.command or (), self._directory, self._variables)
            case _:
                assert_never(rule.to)

    def secrets(self) -> tuple[str, ...]:
        """Return the keys to redact; empty until a key has been fetched."""
        return tuple(secret for key in self._keys.values() for secret in key.secrets)
