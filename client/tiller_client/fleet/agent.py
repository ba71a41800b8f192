"""Offers this host as an agent by the Synadia Agent Protocol, so that any of its clients finds it.

An agent is one conversation: prompts go one after the other to one session of the daemon. The
model's text is streamed. Approvals and questions become queries to the caller, whose reply is the
answer. Replay, steering and the rest of our own protocol are under our own subjects.
"""

import asyncio
import getpass
from contextlib import suppress
from pathlib import Path

from synadia_ai.agent_service import AgentService, PromptStream
from synadia_ai.agents import Envelope

from tiller_client.api.for_asyncio import Client
from tiller_client.errors import RejectedError, TillerError
from tiller_client.fleet.broker import Broker
from tiller_protocol.events import Event, ItemDelta, RequestOpened, TurnEnded
from tiller_protocol.items import Decision, Request
from tiller_protocol.ops import Answer, UserInput
from tiller_protocol.settings import Settings

AGENT = "tiller"

QUERY_S = 600.0
"""How long the caller may think about a query before the request is rejected."""

DECISIONS: dict[str, Decision] = {"yes": "once", "once": "once", "always": "always"}
"""Replies that approve a call; any other one rejects it, and is the reason."""


class Agent:
    """The agent of one host, which works in one directory."""

    def __init__(self, broker: Broker, host: str, client: Client, workspace: Path) -> None:
        self._client = client
        self._workspace = workspace
        self._session_id = ""
        self._turn = asyncio.Lock()
        self._service = AgentService(
            agent=AGENT,
            owner=getpass.getuser(),
            session_name=host,
            nc=broker.nc,
            description=f"tiller in {workspace} on {host}",
        )

    async def start(self) -> None:
        """Be found, and take prompts, from now on."""
        self._service.on_prompt(self._prompt)
        await self._service.start()

    async def _prompt(self, envelope: Envelope, stream: PromptStream) -> None:
        """Run a turn; an exception becomes an error for the caller."""
        async with self._turn:
            if not self._session_id:
                session = await self._client.create_session(self._workspace, Settings())
                self._session_id = session.session_id
            session = self._client.session(self._session_id)
            before = (await session.snapshot()).seq
            await self._client.submit(UserInput(self._session_id, envelope.prompt))
            async for event in session.follow(before):
                if await self._tell(event, stream):
                    return

    async def _tell(self, event: Event, stream: PromptStream) -> bool:
        """Tell the caller of an event; return whether it ends the turn."""
        match event.body:
            case ItemDelta(item_type="assistant_message", delta=piece):
                await stream.send(piece)
            case RequestOpened(request=request):
                await self._ask(request, stream)
            case TurnEnded(outcome=outcome, error=error):
                if outcome not in {"completed", "interrupted"}:
                    raise TillerError(error.message if error else f"the turn ended: {outcome}")
                return True
            case _:
                pass
        return False

    async def _ask(self, request: Request, stream: PromptStream) -> None:
        text = "\n".join(part for part in (request.title, request.detail) if part)
        if request.kind == "question":
            question = text
        else:
            question = f"{text}\n\nReply yes, always, or why not."
        try:
            reply = (await stream.ask(question, timeout=QUERY_S)).prompt.strip()
        except Exception:
            reply = ""
        if request.kind == "question":
            op = Answer(request.id, "answer" if reply else "reject", reply)
        else:
            decision = DECISIONS.get(reply.lower(), "reject")
            op = Answer(request.id, decision, reply if decision == "reject" else "")
        with suppress(RejectedError):  # somebody else was faster
            await self._client.submit(op)
