"""Logins in progress, which frontends request by the op `accounts`."""

import importlib
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import trio
from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.models.accounts.accounts import LoginAccounts
from tiller_daemon.models.accounts.attempt import LoginAttempt, NotOurs, Redirect, begin_attempt
from tiller_daemon.models.accounts.oauth import OAuthRefused, is_code
from tiller_daemon.models.accounts.store import ACCOUNTS_MAX, Login, is_account_name
from tiller_daemon.models.base import ModelError
from tiller_protocol.catalog import LOGIN_S_MAX, Accounts, AccountsResult

log = structlog.get_logger()

EXCHANGE_S_MAX: Final = 20.0
MODELS_S_MAX: Final = 6.0
"""Limits for the end of a login; frontends give up after 30 s."""

ID_TOKEN_MODULE: Final = "tiller_daemon.models.accounts.id_token"  # noqa: S105 - a module

NOT_REVOKED: Final = (
    "OpenAI did not confirm that the login is revoked. To be sure, disconnect tiller in ChatGPT's "
    "settings."
)
NO_PLAN: Final = (
    "You are logged in, but without the permission to use your plan, so tiller can't use it."
)


class Logins:
    """At most one login in progress for each account.

    `changed` is called after a login or logout. `first_model` returns the first model of an
    account's list; it raises `ModelError`. `is_taken` tells whether a provider that is not an
    account has a name.
    """

    def __init__(
        self,
        accounts: LoginAccounts,
        changed: Callable[[], None],
        first_model: Callable[[str], Awaitable[str]],
        is_taken: Callable[[str], bool],
    ) -> None:
        self._accounts = accounts
        self._changed = changed
        self._first_model = first_model
        self._is_taken = is_taken
        self._attempts: dict[str, tuple[float, LoginAttempt]] = {}

    async def handle(self, op: Accounts) -> AccountsResult:
        """Apply the op and return the accounts' state. Raises `RejectionError`."""
        match op.action:
            case "list":
                return AccountsResult(self._accounts.summaries())
            case "begin":
                return await self._begin(op.account, op.port)
            case "finish":
                return await self._finish(op.account, op.redirect)
            case "cancel":
                self._attempts.pop(op.account, None)
                return AccountsResult(())
            case "logout":
                self._attempts.pop(op.account, None)
                confirmed = await self._accounts.log_out(op.account)
                self._changed()
                return self._result(op.account, "" if confirmed else NOT_REVOKED)

    async def _begin(self, name: str, port: int) -> AccountsResult:
        files = self._accounts.files
        if not is_account_name(name):
            message = "An account's name has up to 32 small letters, digits, `-` and `_`."
            raise RejectionError("invalid_settings", message)
        if self._is_taken(name):
            message = f"There is a provider `{name}` already. Choose another name for the account."
            raise RejectionError("invalid_settings", message)
        known = files.get(name)
        if known is None and len({*files.names(), *self._attempts}) >= ACCOUNTS_MAX:
            raise RejectionError("invalid_settings", f"There are {ACCOUNTS_MAX} accounts already.")
        if not 0 < port < 65536:
            raise RejectionError("bad_message", "`port` is not a port.")
        service = self._accounts.oauth.service
        if known is not None and known.issuer != service.issuer:
            known = None
        attempt = begin_attempt(service, known, port)
        try:
            url = attempt.url(await files.host_id())
        except OSError as error:
            raise _not_stored(error) from None
        self._attempts[name] = trio.current_time() + LOGIN_S_MAX, attempt
        return AccountsResult((), url)

    async def _finish(self, name: str, address: str) -> AccountsResult:
        deadline, attempt = self._attempts.get(name, (0.0, None))
        if attempt is None or trio.current_time() > deadline:
            self._attempts.pop(name, None)
            message = f"No login is in progress. {self._accounts.advice(name)}"
            raise RejectionError("not_found", message)
        try:
            redirect = attempt.read(address)
        except NotOurs:
            message = (
                "That is not the address to which this login sent the browser. Copy the whole "
                "address from the browser; it begins with http://127.0.0.1"
            )
            raise RejectionError("bad_message", message) from None
        del self._attempts[name]  # a code is valid once, as is an attempt
        if redirect.error:
            raise RejectionError("unavailable", _declined(redirect.error))
        try:
            with trio.fail_after(EXCHANGE_S_MAX):
                await self._complete(name, attempt, redirect)
        except trio.TooSlowError:
            raise _failed("OpenAI did not answer in time") from None
        except OAuthRefused as refused:
            raise _failed(f"OpenAI refused the code ({refused.code})") from None
        except ModelError as error:
            raise _failed(error.message.rstrip(".")) from None
        except OSError as error:
            raise _not_stored(error) from None
        login = self._accounts.files.get(name)
        assert login
        if not login.may_use_plan:
            self._changed()
            return self._result(name, NO_PLAN)
        self._changed()
        await self._note_model(name, login)
        self._changed()
        return self._result(name)

    async def _complete(self, name: str, attempt: LoginAttempt, redirect: Redirect) -> None:
        """Exchange the code, check who has logged in, and store the login."""
        service, files = attempt.service, self._accounts.files
        registered = attempt.known or Login(service.issuer, redirect.client_id)
        async with files.locked(name):
            if attempt.known is None:
                # If the exchange fails, the next attempt must be the same client.
                await files.write(name, registered)
            oauth = self._accounts.oauth
            grant = await oauth.exchange(
                redirect.code, redirect.client_id, attempt.verifier, attempt.redirect_uri
            )
            keys = await oauth.published_keys()
            # The import takes 60 ms: in this thread it would block the whole daemon.
            checks = await trio.to_thread.run_sync(importlib.import_module, ID_TOKEN_MODULE)
            try:
                claims = checks.verify_id_token(
                    grant.id_token, keys, issuer=service.issuer, client_id=redirect.client_id,
                    nonce=attempt.nonce,
                )  # fmt: skip
            except checks.InvalidIdToken as invalid:
                raise _failed(f"The ID token is not accepted, because {invalid}") from None
            if registered.subject not in ("", claims["sub"]):
                raise _failed(
                    f"That is not the account `{name}`, with which you were logged in before. To "
                    "add another account, give it a name: tiller login --account NAME"
                )
            email = claims.get("email")
            new = structs.replace(
                registered,
                subject=claims["sub"],
                email=email if isinstance(email, str) else "",
                refresh_token="",
            )
            await files.write(name, grant.onto(new))
        log.info("logged_in", account=name)

    async def _note_model(self, name: str, login: Login) -> None:
        """Store the first model of the account's list as its default."""
        model = login.model
        with trio.move_on_after(MODELS_S_MAX):
            try:
                model = await self._first_model(name)
            except ModelError as error:
                log.warning("models_unknown", account=name, reason=error.message)
        if model != login.model:
            async with self._accounts.files.locked(name):
                now = self._accounts.files.reread(name) or login
                await self._accounts.files.write(name, structs.replace(now, model=model))

    def _result(self, name: str, warning: str = "") -> AccountsResult:
        return AccountsResult((self._accounts.summary(name),), warning=warning)


def _declined(error: str) -> str:
    if error == "access_denied":
        return "The login was declined in the browser, so nothing has changed."
    shown = error if is_code(error) else "unknown error"
    return f"The login failed. The browser was sent back with `{shown}`. Try again: tiller login"


def _failed(why: str) -> RejectionError:
    return RejectionError("unavailable", f"The login failed. {why}. Try again: tiller login")


def _not_stored(error: OSError) -> RejectionError:
    return RejectionError("unavailable", f"The login can't be stored: {error.strerror}.")
