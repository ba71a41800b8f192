"""The user's accounts: gives their tokens to providers, renews and revokes them.

A renewal voids the refresh token, so its answer must not get lost: a cancelled turn does not cancel
it, another process waits for it, and its tokens are on disk before they are used.
"""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import structlog
import trio
from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.models.accounts.chatgpt import (
    DENIED,
    ENDED,
    LIMIT_REACHED,
    RENEW_BEFORE_S,
    LoginService,
)
from tiller_daemon.models.accounts.oauth import OAuth, OAuthRefused
from tiller_daemon.models.accounts.store import Login, LoginFiles
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.keys import Key, KeyUnavailable
from tiller_protocol.catalog import ACCOUNT_DEFAULT, AccountSummary

log = structlog.get_logger()

RENEWAL_S_MAX: Final = 30.0
"""How long a renewal may take, including the wait for another process."""

STOP_S_MAX: Final = 2.0
"""How long a stopping daemon waits for the answer to a renewal."""

REVOCATION_ATTEMPTS: Final = 3
REVOCATION_PAUSE_S: Final = 0.5
REVOCATION_S_MAX: Final = 20.0


class Renewal:
    """A renewal under way. `error` says why it failed, once it is `over`."""

    def __init__(self) -> None:
        self.over = trio.Event()
        deadline = trio.current_time() + RENEWAL_S_MAX
        self.scope = trio.CancelScope(shield=True, deadline=deadline)
        self.error: ModelError | None = None


class LoginAccounts:
    """The logins in `directory`. Tokens are renewed only while `run` is running."""

    def __init__(self, directory: Path, environ: Mapping[str, str], service: LoginService) -> None:
        self.files = LoginFiles(directory)
        self.oauth = OAuth(service, environ)
        self._renewals: dict[str, Renewal] = {}
        self._nursery: trio.Nursery | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """All tokens, to be redacted."""
        return self.files.secrets

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Renew tokens when they are needed, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None
                for renewal in self._renewals.values():
                    renewal.scope.deadline = trio.current_time() + STOP_S_MAX

    @property
    def default_model(self) -> str | None:
        """The model to use if none is configured: of the default account, or else of the first.

        A login that has ended still counts, so that nothing else is used and paid instead.
        """
        found = {
            account.name: account.model
            for account in self.summaries()
            if account.state in ("signed_in", "ended") and account.model
        }
        return found.get(ACCOUNT_DEFAULT) or next(iter(found.values()), None)

    def summaries(self) -> tuple[AccountSummary, ...]:
        """Return all accounts in order."""
        return tuple(self.summary(name) for name in self.files.names())

    def summary(self, name: str) -> AccountSummary:
        """Return what frontends may know of an account, which must exist."""
        login = self.files.get(name)
        assert login
        model = f"{name}/{login.model}" if login.model else ""
        if login.ended:
            return AccountSummary(name, "ended", login.email, model)
        if not login.access_token:
            return AccountSummary(name, "signed_out", login.email, model)
        state = "signed_in" if login.may_use_plan else "not_permitted"
        return AccountSummary(name, state, login.email, model)

    def advice(self, name: str) -> str:
        """Return the sentence that says how to log in."""
        return "Run: tiller login" + ("" if name == ACCOUNT_DEFAULT else f" --account {name}")

    def problem(self, name: str) -> str:
        """Say why an account can't be used, and what to do; empty if all is well."""
        login = self.files.get(name)
        if login is None:
            return f"There is no account `{name}`. {self.advice(name)}"
        if login.ended:
            return f"The login `{name}` has ended ({login.ended}). {self.advice(name)}"
        if not login.access_token:
            return f"The account `{name}` is logged out. {self.advice(name)}"
        if not login.may_use_plan:
            return (
                f"The login `{name}` does not permit tiller to use your ChatGPT plan. "
                f"{self.advice(name)}, and allow it there"
            )
        return ""

    async def token(self, name: str) -> str:
        """Return an access token that is valid for now.

        Raises `KeyUnavailable` if the user has to log in, and `ModelError` if a renewal fails.
        """
        login = self._usable(name)
        if not _is_due(login):
            await trio.lowlevel.checkpoint()
            return login.access_token
        try:
            await self._await_renewal(name, login.access_token)
        except ModelError:
            if time.time() >= login.expires_at:
                raise
            log.warning("login_not_renewed", account=name)
        return self._usable(name).access_token

    async def renew(self, name: str, refused: str) -> bool:
        """Renew a token that the API has `refused`; return whether there is another one now."""
        await self._await_renewal(name, refused)
        login = self.files.get(name)
        return login is not None and login.access_token not in ("", refused)

    async def log_out(self, name: str) -> bool:
        """Revoke a login and forget its tokens; return whether the issuer confirmed that.

        The registration is kept, so that the next login is the same account. Raises
        `RejectionError`.
        """
        async with self.files.locked(name):
            login = self.files.reread(name)
            if login is None or not (login.access_token or login.ended):
                raise RejectionError("not_found", f"There is no login `{name}`.")
            confirmed = await self._revoke(login) if login.refresh_token else bool(login.ended)
            cleared = {"access_token": "", "refresh_token": "", "ended": ""}
            await self.files.write(name, structs.replace(login, **cleared))
        log.info("logged_out", account=name, confirmed=confirmed)
        return confirmed

    def _usable(self, name: str) -> Login:
        if problem := self.problem(name):
            raise KeyUnavailable(problem)
        login = self.files.get(name)
        assert login
        return login

    async def _await_renewal(self, name: str, old: str) -> None:
        """Wait for the renewal of the token `old`, which this or another task has asked for."""
        renewal = self._renewals.get(name)
        if renewal is None:
            if self._nursery is None:
                raise ModelError("server", "The daemon is stopping.", final=True)
            renewal = self._renewals[name] = Renewal()
            self._nursery.start_soon(self._run_renewal, name, old, renewal)
        await renewal.over.wait()
        if renewal.error:
            raise renewal.error.with_message(renewal.error.message)

    async def _run_renewal(self, name: str, old: str, renewal: Renewal) -> None:
        renewal.error = ModelError("timeout", f"The login `{name}` was not renewed in time.")
        try:
            with renewal.scope:
                try:
                    await self._renew(name, old)
                    renewal.error = None
                except ModelError as error:
                    renewal.error = error
                except OSError as error:
                    message = f"The login `{name}` can't be stored: {error.strerror}."
                    renewal.error = ModelError("bad_request", message)
        finally:
            del self._renewals[name]
            renewal.over.set()

    async def _renew(self, name: str, old: str) -> None:
        async with self.files.locked(name):
            login = self.files.reread(name)
            if login is None or login.access_token != old or not _may_renew(login):
                return  # another process was first, or a renewal would end the login
            try:
                grant = await self.oauth.renew(login)
            except OAuthRefused as refused:
                if refused.code not in ENDED:
                    message = f"The login `{name}` can't be renewed ({refused.code})."
                    raise ModelError("authentication", message) from None
                ended = {"access_token": "", "refresh_token": "", "ended": refused.code}
                await self.files.write(name, structs.replace(login, **ended))
                log.warning("login_ended", account=name, code=refused.code)
            else:
                await self.files.write(name, grant.onto(login))
                log.info("login_renewed", account=name)

    async def _revoke(self, login: Login) -> bool:
        with trio.move_on_after(REVOCATION_S_MAX):
            for attempt in range(REVOCATION_ATTEMPTS):
                try:
                    return await self.oauth.revoke(login)
                except ModelError as error:
                    log.warning("login_not_revoked", reason=error.message)
                    await trio.sleep(REVOCATION_PAUSE_S * 2**attempt)
        return False


class AccountKey(Key):
    """The access token of the account `name`, renewed before it ends."""

    noun = "login"
    forbidden_advice = DENIED
    quota_advice = LIMIT_REACHED

    def __init__(self, accounts: LoginAccounts, name: str) -> None:
        token, problem = partial(accounts.token, name), partial(accounts.problem, name)
        super().__init__(f"the login `{name}`", token, problem)
        self._accounts = accounts
        self._name = name

    @property
    def secrets(self) -> tuple[str, ...]:
        """The tokens of all accounts."""
        return self._accounts.secrets

    @property
    def advice(self) -> str:
        """A sentence that says what to do if the server rejects the token."""
        return self._accounts.advice(self._name)

    async def read(self) -> str:
        """Return the token. Raises `KeyUnavailable` if the user has to log in, or `ModelError`."""
        return await self._fetch()

    async def refresh(self, refused: str) -> bool:
        """Renew a token that the server rejected. Return whether there is another one now."""
        return await self._accounts.renew(self._name, refused)


def _is_due(login: Login) -> bool:
    """Whether a token should be renewed before it is used."""
    return time.time() >= login.expires_at - RENEW_BEFORE_S and _may_renew(login)


def _may_renew(login: Login) -> bool:
    """Whether the issuer accepts a renewal now: an early one would end the login.

    The end of a token is known by our own clock, so it counts if the clocks differ.
    """
    now = time.time()
    return bool(login.refresh_token) and (now >= login.renewable_at or now >= login.expires_at)
