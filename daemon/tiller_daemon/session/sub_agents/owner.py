"""The owner of sub-agents: passes rules down to them, and takes their requests and spending.

If the turn is itself a sub-agent's, the owner also passes its events and grants further up.
"""

from msgspec import structs

from tiller_daemon.session.context.freeze import with_grants
from tiller_daemon.session.requests import Reply
from tiller_daemon.session.session_parts import SessionParts
from tiller_daemon.session.sub_agents.sub_agent_run import SubAgentRun, spent_by
from tiller_daemon.turn.budget import Spent
from tiller_daemon.turn.context import TurnContext
from tiller_protocol.events import AnyBody, ItemDelta, SessionConfigured, ToolCallUpdated
from tiller_protocol.items import Request, SubAgent
from tiller_protocol.settings import Rule


class Owner:
    """A turn as the `Principal` of its sub-agents.

    `link` is set for a sub-agent's turn, and leads to the principal that the turn works for. `runs`
    are the turn's own sub-agents. They refer to the owner, so the turn clears them when it ends, as
    otherwise it would stay in memory.
    """

    def __init__(
        self, context: TurnContext, session: SessionParts, link: SubAgentRun | None
    ) -> None:
        self.context = context
        self.session_id = context.session_id
        # Nobody else works in a sub-agent's own worktree.
        shares = link is not None and not link.inherited.apart
        self.claims = link.owner.claims if link and shares else session.tasks.claims
        self.runs: list[SubAgentRun] = []
        self._session = session
        self._link = link
        self._grants: tuple[Rule, ...] = ()
        self._background_before = session.tasks.spent()

    def grant(self, rules: tuple[Rule, ...]) -> None:
        """Apply rules that the user granted to all later calls and to open requests."""
        self._grants += rules
        self.reconsider()
        if self._link:
            self._link.pass_up_grant(rules)

    def revoke(self, rule: Rule) -> None:
        """Stop applying a rule of the session for the rest of the turn."""
        self._grants += (structs.replace(rule, action="ask"),)

    def grant_from_sub_agent(self, rules: tuple[Rule, ...]) -> None:
        """Apply the rules that the user granted to a sub-agent to this whole session."""
        settings = with_grants(self._session.outbox.fold_pending().settings, rules)
        self._session.outbox.put(SessionConfigured(settings))
        self.grant(rules)
        self._session.tasks.reconsider()

    def reconsider(self) -> None:
        """Resolve open requests that the rules now allow, here and in sub-agents."""
        self._session.requests.reconsider()
        for run in self.runs:
            if run.turn:
                run.turn.reconsider()

    def live_rules(self) -> tuple[Rule, ...]:
        """Return the rules granted since the turn began, weakest first."""
        # This session's grants come last, so they are the strongest.
        return (*(self._link.owner.live_rules() if self._link else ()), *self._grants)

    def mirror_request(self, request: Request) -> None:
        """Show a sub-agent's request in this session."""
        self._session.requests.mirror(request, self.context.turn_id)

    def mirror_resolution(self, request_id: str, reply: Reply) -> None:
        """Show how a sub-agent's request was resolved."""
        self._session.requests.resolve_mirrored(request_id, reply, self.context.turn_id)

    def put(self, *bodies: AnyBody) -> None:
        """Put events of the turn into the outbox, where the turn's principal sees them, too."""
        if self._link:
            self._link.observe(*bodies)
        self._session.outbox.put(*bodies, turn_id=self.context.turn_id)

    async def emit(self, *bodies: AnyBody) -> None:
        """Like `put`, but waits while too many events are uncommitted."""
        if self._link:
            self._link.observe(*bodies)
        await self._session.outbox.emit(*bodies, turn_id=self.context.turn_id)

    def report(self, item_id: str, totals: SubAgent) -> None:
        """Show the spending so far of a call's sub-agent."""
        self.put(ToolCallUpdated(item_id, "running", sub_agent=totals))

    def show_call(self, item_id: str, line: str) -> None:
        """Show a call that a sub-agent makes, as live output of the `task` call."""
        self.put(ItemDelta(item_id, "output", f"{line}\n", "tool_call"))

    def spent_by_others(self) -> Spent:
        """Return the spending that counts against the budgets besides the turn's own steps.

        This is the spending of the turn's sub-agents, of its siblings if it is a sub-agent's turn,
        and of the background sub-agents since the turn began.
        """
        beside = self._link.spent_beside() if self._link else Spent()
        background = self._session.tasks.spent().minus(self._background_before)
        return spent_by(self.runs).plus(beside).plus(background)
