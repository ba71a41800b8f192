"""Sends messages to servers: to ntfy, to webhooks that take Slack's format, and to others."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from tiller_daemon.config import NotifyMoment
from tiller_daemon.models.keys import Key, KeyUnavailable
from tiller_daemon.notify.delivery import TargetProblem
from tiller_daemon.notify.messages import Message
from tiller_daemon.redaction.text import redact
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.web.address import any_address, parse_address
from tiller_daemon.tools.web.page import WebRequest, get_page

REASON_CHARS_MAX: Final = 200
"""How much of a refusal is logged."""

HIGH_PRIORITY, NORMAL_PRIORITY = 4, 3
"""Priorities of ntfy."""

TAGS: Final[Mapping[NotifyMoment, str]] = {
    "needs_answer": "raising_hand",
    "ended": "white_check_mark",
    "failed": "x",
    "limit": "hourglass",
}
"""Emojis of ntfy."""

RETRIED: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
"""Refusals that may pass, besides the faults of servers."""

NOT_KNOWN: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
"""How an ntfy before 2.16 answers when a message is to be deleted."""


class _Server:
    """A server that gets JSON. Addresses and tokens appear in no problem."""

    def __init__(self, url: str, key: Key, proxies: Mapping[str, str]) -> None:
        """`proxies` are environment variables."""
        self._url = url
        self._key = key
        self._proxies = proxies

    async def _send(self, method: str, url: str, content: Any = None, token: str = "") -> int:  # noqa: ANN401 - any JSON
        """Send a request, and return the status; raises `TargetProblem`."""
        body = b"" if content is None else msgspec.json.encode(content)
        headers = [("User-Agent", "tiller"), ("Accept", "*/*")]
        headers += [("Content-Type", "application/json")] if body else []
        headers += [("Authorization", f"Bearer {token}")] if token else []
        request = WebRequest(headers, method=method, body=body)
        try:
            page = await get_page(parse_address(url), self._proxies, any_address, request)
        except ToolFailure as failure:
            raise TargetProblem(self._redacted(str(failure))) from None
        status = page.status
        if status >= HTTPStatus.BAD_REQUEST and not (method == "DELETE" and status in NOT_KNOWN):
            said = page.body.decode(errors="replace").strip()[:REASON_CHARS_MAX]
            may_pass = status in RETRIED or status >= HTTPStatus.INTERNAL_SERVER_ERROR
            reason = self._redacted(f"the server answers {status}: {said}")
            raise TargetProblem(reason, final=not may_pass)
        return status

    async def _secret(self) -> str:
        """Return the key, or the empty text if there is none; raises `TargetProblem`."""
        try:
            return await self._key.read()
        except KeyUnavailable as problem:
            raise TargetProblem(str(problem), final=True) from None

    def _redacted(self, text: str) -> str:
        return redact(text, (*self._key.secrets, self._url))


class Webhook(_Server):
    """A server that gets each message as JSON; nothing is withdrawn. The key is its token."""

    async def show(self, message: Message, shown: str) -> str:  # noqa: ARG002 - can't replace
        """Send a message; see `delivery.Target`."""
        await self._send("POST", self._url, message, await self._secret())
        return ""

    async def withdraw(self, shown: str) -> None:
        """Do nothing."""


class Slack(Webhook):
    """A webhook in Slack's format, which many chats take. Its address may be the key."""

    async def show(self, message: Message, shown: str) -> str:  # noqa: ARG002 - can't replace
        """Send a message; see `delivery.Target`."""
        text = _escaped(f"{message.title}\n{message.text}")
        await self._send("POST", self._url or await self._secret(), {"text": text})
        return ""


class Ntfy(_Server):
    """A topic of ntfy. Messages of one session have one sequence id, by which they are replaced."""

    async def show(self, message: Message, shown: str) -> str:  # noqa: ARG002 - by sequence id
        """Publish a message; see `delivery.Target`."""
        server, _, topic = self._url.rstrip("/").rpartition("/")
        sequence = f"tiller-{message.session_id}"
        needs = message.moment == "needs_answer"
        content = {
            "topic": topic,
            "title": message.title,
            "message": message.text,
            "tags": [TAGS[message.moment]],
            "priority": HIGH_PRIORITY if needs else NORMAL_PRIORITY,
            "sequence_id": sequence,
        }
        await self._send("POST", f"{server}/", content, await self._secret())
        return sequence

    async def withdraw(self, shown: str) -> None:
        """Delete the messages with this sequence id; see `delivery.Target`."""
        await self._send("DELETE", f"{self._url.rstrip('/')}/{shown}", token=await self._secret())


def _escaped(text: str) -> str:
    """Escape what Slack reads as a link or a mention, such as `<!channel>`."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
