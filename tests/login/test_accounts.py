"""Logins with a service that nobody here wrote: made, renewed, stolen, revoked, forged."""

import json
import stat
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
import pytest
import trio

from support.login_service import LoginPeer, browse
from tiller_daemon.errors import RejectionError
from tiller_daemon.models.accounts.accounts import AccountKey, LoginAccounts
from tiller_daemon.models.accounts.logins import Logins
from tiller_daemon.models.accounts.store import Login
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.keys import KeyUnavailable
from tiller_protocol.catalog import Accounts

pytestmark = pytest.mark.peer


class User:
    """A user with accounts in `directory`, who logs in by a browser."""

    def __init__(self, peer: LoginPeer, directory: Path) -> None:
        self.peer = peer
        self.directory = directory
        self.accounts = LoginAccounts(directory, {}, peer.service)
        self.logins = Logins(
            self.accounts, lambda: None, self._model, lambda name: name == "openai"
        )

    async def begin(self, name: str = "chatgpt") -> str:
        return (await self.logins.handle(Accounts("begin", name, 5555))).url

    async def finish(self, address: str, name: str = "chatgpt") -> None:
        await self.logins.handle(Accounts("finish", name, redirect=address))

    async def log_in(self, name: str = "chatgpt") -> Login:
        await self.finish(await browse(await self.begin(name)), name)
        return self.stored(name)

    async def log_in_for_a_moment(self) -> Login:
        """Log in, and get a token that is due for a renewal, which the service allows."""
        self.peer.behave(earliestIn=-1)
        login = await self.log_in()
        await self.expire()
        self.peer.behave()
        self.peer.seen()
        return login

    async def refused(self, op: Accounts) -> str:
        with pytest.raises(RejectionError) as refused:
            await self.logins.handle(op)
        return refused.value.message

    def stored(self, name: str = "chatgpt") -> Login:
        return msgspec.json.decode((self.directory / f"{name}.json").read_bytes(), type=Login)

    async def expire(self, name: str = "chatgpt", **changes: float) -> None:
        """Let the token's time be over, or have `changes`."""
        changes = {"expires_at": time.time() - 1, **changes}
        await self.accounts.files.write(name, msgspec.structs.replace(self.stored(name), **changes))

    async def _model(self, name: str) -> str:
        await trio.lowlevel.checkpoint()
        return "gpt-6-sol"


@pytest.fixture
async def user(peer: LoginPeer, tmp_path: Path, nursery: trio.Nursery) -> AsyncGenerator[User]:
    user = User(peer, tmp_path / "accounts")
    await nursery.start(user.accounts.run)
    yield user
    nursery.cancel_scope.cancel()


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def changed(address: str, **changes: str) -> str:
    return f"{address.split('?')[0]}?{urlencode({**query_of(address), **changes})}"


async def test_a_login_is_stored_privately_and_its_token_is_a_key(
    user: User, peer: LoginPeer
) -> None:
    login = await user.log_in()
    assert (login.client_id[:7], login.subject, login.email) == (
        "oaiapp_", "user-1", "user-1@example.com",
    )  # fmt: skip
    assert await AccountKey(user.accounts, "chatgpt").read() == login.access_token
    (summary,) = (await user.logins.handle(Accounts())).accounts
    assert (summary.state, summary.model) == ("signed_in", "chatgpt/gpt-6-sol")
    for file in user.directory.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE(user.directory.stat().st_mode) == 0o700
    assert {*user.accounts.secrets} == {login.access_token, login.refresh_token}


async def test_the_next_login_is_the_same_client_on_the_same_host(
    user: User, peer: LoginPeer
) -> None:
    first = await user.log_in()
    assert (await user.log_in()).client_id == first.client_id
    one, two = peer.seen("authorize")
    assert (one["client_id"], one["agent_name_hint"]) == ("dynamic_agent_client", "tiller")
    assert (two["client_id"], two["login_hint"]) == (first.client_id, "user-1@example.com")
    assert one["ext_agent_host_id"] == two["ext_agent_host_id"]
    for name in ("state", "nonce", "code_challenge"):
        assert one[name] != two[name]


async def test_several_accounts_have_separate_clients_and_tokens(
    user: User, peer: LoginPeer
) -> None:
    first = await user.log_in()
    peer.behave(account="user-2")
    second = await user.log_in("work")
    assert first.client_id != second.client_id
    assert await user.accounts.token("work") == second.access_token != first.access_token
    assert user.accounts.default_model == "chatgpt/gpt-6-sol"
    assert [one.name for one in user.accounts.summaries()] == ["chatgpt", "work"]
    await user.logins.handle(Accounts("logout"))
    assert user.accounts.default_model == "work/gpt-6-sol"
    assert await user.accounts.token("work") == second.access_token


async def test_another_account_never_replaces_one(user: User, peer: LoginPeer) -> None:
    before = await user.log_in()
    peer.behave(account="user-2")
    address = await browse(await user.begin())
    message = await user.refused(Accounts("finish", redirect=address))
    assert "tiller login --account NAME" in message
    assert user.stored() == before


async def test_what_is_pasted_must_be_the_redirect_of_this_login(user: User) -> None:
    address = await browse(await user.begin())
    code = query_of(address)["code"]
    for wrong in (
        changed(address, state="x" * 43), address.replace("/auth/", "/other/"), code,
        f"{address}&code=twice", "", "http://[", address.split("?")[0],
    ):  # fmt: skip
        assert "Copy the whole address" in await user.refused(Accounts("finish", redirect=wrong))
    await user.finish(f"  {address}\n")
    assert "No login is in progress" in await user.refused(Accounts("finish", redirect=address))


async def test_a_declined_login_changes_nothing(user: User, peer: LoginPeer) -> None:
    peer.behave(deny=True)
    address = await browse(await user.begin())
    assert "declined" in await user.refused(Accounts("finish", redirect=address))
    assert not [*user.directory.glob("*.json")]
    assert not peer.seen("token")


async def test_a_redirect_with_another_client_or_issuer_is_refused(
    user: User, peer: LoginPeer
) -> None:
    await user.log_in()
    before = user.stored()
    peer.seen()
    for change, error in (
        ({"client_id": "oaiapp_other"}, "wrong_client"),
        ({"iss": "https://evil.example"}, "wrong_issuer"),
    ):
        address = changed(await browse(await user.begin()), **change)
        assert error in await user.refused(Accounts("finish", redirect=address))
    assert user.stored() == before
    assert not peer.seen("token")


async def test_a_first_login_without_an_issued_client_is_incomplete(
    user: User, peer: LoginPeer
) -> None:
    peer.behave(dropIssued=True)
    address = await browse(await user.begin())
    for wrong in (address, changed(address, client_id="dynamic_agent_client")):
        await user.begin()
        refused = await user.refused(Accounts("finish", redirect=wrong))
        assert "Copy the whole" in refused
    address = await browse(await user.begin())
    assert "wrong_client" in await user.refused(Accounts("finish", redirect=address))
    assert not peer.seen("token")


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        ({"nonce": "n" * 43}, "wrong nonce"),
        ({"aud": "oaiapp_other"}, "wrong audience"),
        ({"aud": ["oaiapp_other"]}, "wrong audience"),
        ({"exp": int(time.time()) - 300}, "it has expired"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"azp": "oaiapp_other"}, "another program"),
        ({"signature": "foreign"}, "its signature is invalid"),
        ({"sub": None}, "it is invalid"),
    ],
)
async def test_an_id_token_that_this_login_did_not_ask_for_is_refused(
    user: User, peer: LoginPeer, tamper: dict[str, object], reason: str
) -> None:
    peer.behave(tamper=tamper)
    address = await browse(await user.begin())
    assert reason in await user.refused(Accounts("finish", redirect=address))
    # The registration is kept, so that the next attempt is the same client; no token is.
    assert user.stored().access_token == user.stored().refresh_token == ""
    with pytest.raises(KeyUnavailable, match="tiller login"):
        await user.accounts.token("chatgpt")
    client_id = user.stored().client_id
    peer.behave()
    assert (await user.log_in()).client_id == client_id


async def test_without_the_permission_the_plan_is_not_used_and_asked_for_again(
    user: User, peer: LoginPeer
) -> None:
    peer.behave(plan=False)
    address = await browse(await user.begin())
    result = await user.logins.handle(Accounts("finish", redirect=address))
    assert "without the permission" in result.warning
    assert result.accounts[0].state == "not_permitted"
    with pytest.raises(KeyUnavailable, match="does not permit"):
        await user.accounts.token("chatgpt")
    peer.behave()
    peer.seen()
    await user.log_in()
    (asked,) = peer.seen("authorize")
    assert asked["prompt"] == "consent"
    assert await user.accounts.token("chatgpt")


async def test_a_due_token_is_renewed_once_and_stored_before_it_is_used(
    user: User, peer: LoginPeer
) -> None:
    old = await user.log_in_for_a_moment()
    found: list[str] = []

    async def read() -> None:
        found.append(await user.accounts.token("chatgpt"))
        assert user.stored().access_token == found[-1]

    async with trio.open_nursery() as tasks:
        for _ in range(8):
            tasks.start_soon(read)
    new = user.stored()
    assert set(found) == {new.access_token}
    assert old.access_token != new.access_token
    assert old.refresh_token != new.refresh_token
    (form,) = peer.seen("token")
    assert form["refresh_token"] == old.refresh_token
    assert {old.access_token, new.refresh_token} <= {*user.accounts.secrets}
    assert await user.accounts.token("chatgpt") == new.access_token, "it is valid for an hour"


async def test_a_token_is_never_renewed_before_its_time(user: User, peer: LoginPeer) -> None:
    login = await user.log_in()
    assert 200 < login.expires_at - login.renewable_at < 500
    peer.seen()
    assert not await user.accounts.renew("chatgpt", login.access_token)
    await user.expire(expires_at=time.time() + 60, renewable_at=time.time() + 30)
    assert await user.accounts.token("chatgpt") == login.access_token
    assert not peer.seen(), "OpenAI would have ended the login"


@pytest.mark.parametrize(
    "odd", [{"expires_in": "soon"}, {"scope": None}, {"earliest_refresh_at": {}}, {"id_token": 5}]
)
async def test_no_odd_field_in_an_answer_loses_the_new_token(
    user: User, peer: LoginPeer, odd: dict[str, object]
) -> None:
    await user.log_in_for_a_moment()
    new = {"access_token": "odd-access-token", "refresh_token": "odd-refresh-token"}
    peer.behave(tokenError=[200, {**new, **odd}])
    assert await user.accounts.token("chatgpt") == new["access_token"]
    assert user.stored().refresh_token == new["refresh_token"]


async def test_a_used_refresh_token_that_was_stolen_ends_the_login(
    user: User, peer: LoginPeer
) -> None:
    old = await user.log_in_for_a_moment()
    peer.behave(earliestIn=-1)
    new = await user.accounts.token("chatgpt")
    stolen = {"refresh_token": old.refresh_token, "client_id": old.client_id}
    assert peer.post(grant_type="refresh_token", **stolen)[0] == 400
    await user.expire()
    with pytest.raises(KeyUnavailable, match=r"invalid_grant.*Run: tiller login$"):
        await user.accounts.token("chatgpt")
    stored = user.stored()
    assert (stored.access_token, stored.refresh_token) == ("", "")
    assert user.accounts.summary("chatgpt").state == "ended"
    assert user.accounts.default_model, "nothing else is used and paid instead"
    assert (await user.log_in()).client_id == old.client_id
    assert await user.accounts.token("chatgpt") != new


async def test_a_cancelled_turn_does_not_lose_the_renewed_token(
    user: User, peer: LoginPeer
) -> None:
    old = await user.log_in_for_a_moment()
    peer.behave(delayMs=200)
    with trio.move_on_after(0.05) as cancelled:
        await user.accounts.token("chatgpt")
    assert cancelled.cancelled_caught
    assert await user.accounts.token("chatgpt") == user.stored().access_token != old.access_token
    assert len(peer.seen("token")) == 1


async def test_tokens_are_stored_even_if_the_time_for_the_renewal_is_over(user: User) -> None:
    login = msgspec.structs.replace(await user.log_in(), refresh_token="new")
    with trio.move_on_after(0):
        await user.accounts.files.write("chatgpt", login)
    assert user.stored().refresh_token == "new"


async def test_a_stopping_daemon_waits_for_the_renewed_token(
    user: User, peer: LoginPeer, nursery: trio.Nursery
) -> None:
    old = await user.log_in_for_a_moment()
    peer.behave(delayMs=200)
    async with trio.open_nursery() as daemon:
        other = LoginAccounts(user.directory, {}, peer.service)
        await daemon.start(other.run)
        daemon.start_soon(other.token, "chatgpt")
        with trio.fail_after(5):
            while not peer.seen("token"):  # noqa: ASYNC110 - it is another process
                await trio.sleep(0.01)
        daemon.cancel_scope.cancel()
    assert user.stored().refresh_token != old.refresh_token


async def test_a_failure_of_the_service_ends_no_login(user: User, peer: LoginPeer) -> None:
    login = await user.log_in_for_a_moment()
    peer.behave(tokenError=[503, {"error": {"code": "temporarily_unavailable"}}])
    await user.expire(expires_at=time.time() + 60)
    assert await user.accounts.token("chatgpt") == login.access_token, "it is still valid"
    await user.expire()
    with pytest.raises(ModelError) as failed:
        await user.accounts.token("chatgpt")
    assert failed.value.retryable
    assert user.stored().refresh_token == login.refresh_token
    peer.behave(tokenError=[401, {"error": "invalid_client"}])
    with pytest.raises(ModelError, match="invalid_client") as failed:
        await user.accounts.token("chatgpt")
    assert not failed.value.retryable
    peer.behave()
    assert await user.accounts.token("chatgpt") != login.access_token


RENEW = """
import sys, trio
from pathlib import Path
from tiller_daemon.models.accounts.accounts import LoginAccounts
from tiller_daemon.models.accounts.chatgpt import LoginService

async def main():
    accounts = LoginAccounts(Path(sys.argv[1]), {}, LoginService(*sys.argv[2:]))
    async with trio.open_nursery() as nursery:
        await nursery.start(accounts.run)
        print("ready", flush=True)
        sys.stdin.readline()
        print(await accounts.token("chatgpt"))
        nursery.cancel_scope.cancel()

trio.run(main)
"""


async def test_two_processes_renew_a_token_once(user: User, peer: LoginPeer) -> None:
    old = await user.log_in_for_a_moment()
    peer.behave(delayMs=100, earliestIn=-1)
    service = msgspec.structs.astuple(peer.service)
    processes = [
        subprocess.Popen(  # noqa: ASYNC220 - returns at once
            [sys.executable, "-c", RENEW, str(user.directory), *service],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip

    def run() -> list[str]:
        for process in processes:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        return [process.communicate(timeout=20)[0].split()[-1] for process in processes]

    tokens = await trio.to_thread.run_sync(run)
    assert len(peer.seen("token")) == 1
    assert set(tokens) == {user.stored().access_token}
    assert tokens[0] != old.access_token
    # This process learns it from the file, too, when the API refuses its token.
    assert await user.accounts.renew("chatgpt", old.access_token)


async def test_a_logout_revokes_the_login_and_keeps_the_registration(
    user: User, peer: LoginPeer
) -> None:
    login = await user.log_in()
    peer.seen()
    result = await user.logins.handle(Accounts("logout"))
    assert not result.warning
    (asked,) = peer.seen("revocation")
    assert (asked["token"], asked["token_type_hint"]) == (login.refresh_token, "refresh_token")
    used = {"refresh_token": login.refresh_token, "client_id": login.client_id}
    assert peer.post(grant_type="refresh_token", **used)[0] == 400
    stored = user.stored()
    assert (stored.access_token, stored.refresh_token) == ("", "")
    assert (stored.client_id, stored.subject) == (login.client_id, login.subject)
    with pytest.raises(KeyUnavailable, match="logged out"):
        await user.accounts.token("chatgpt")
    assert "no login" in await user.refused(Accounts("logout"))
    assert user.accounts.default_model is None


async def test_a_logout_that_is_not_confirmed_says_so(
    user: User, peer: LoginPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiller_daemon.models.accounts.accounts.REVOCATION_PAUSE_S", 0.001)
    await user.log_in()
    peer.behave(revokeStatus=503)
    result = await user.logins.handle(Accounts("logout"))
    assert "disconnect tiller" in result.warning
    assert len(peer.seen("revocation")) == 3
    assert user.stored().access_token == ""


async def test_names_of_accounts_are_checked(user: User) -> None:
    for name in ("", "A", "../x", "a/b", "x" * 33):
        assert "small letters" in await user.refused(Accounts("begin", name, 5555))
    assert "is a provider `openai`" in await user.refused(Accounts("begin", "openai", 5555))
    assert "not a port" in await user.refused(Accounts("begin"))


async def test_no_error_repeats_what_the_service_says_beside_its_code(
    user: User, peer: LoginPeer
) -> None:
    peer.behave(tokenError=[400, {"error": "invalid_grant", "error_description": "secret-canary"}])
    address = await browse(await user.begin())
    message = await user.refused(Accounts("finish", redirect=address))
    assert "invalid_grant" in message
    assert "canary" not in message
    assert query_of(address)["code"] not in message
    assert "canary" not in json.dumps(msgspec.to_builtins(user.stored()))
