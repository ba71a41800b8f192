"""Loans of random lenders, compared with a simple model of them."""

from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
import pytest
import trio
import trio.testing
from hypothesis import example, given

from tiller_daemon.config import McpServer
from tiller_daemon.mcp.environment import ServerEnvironment
from tiller_daemon.mcp.loans import Loans
from tiller_daemon.mcp.login_store import LoginStore
from tiller_daemon.mcp.managed_server import ManagedServer
from tiller_daemon.session.services import Lent
from tiller_protocol.lending import LEASE_S

SESSIONS = ("s", "t")
LENDERS = ("me", "you")

servers = st.dictionaries(
    st.sampled_from("ab"), st.builds(lambda url: McpServer(url=url), st.sampled_from("12"))
)
lent = st.builds(Lent, servers, st.booleans())
actions = st.lists(
    st.one_of(
        st.tuples(st.just("lend"), st.sampled_from(SESSIONS), st.sampled_from(LENDERS), lent),
        st.tuples(st.just("ask_no_more"), st.sampled_from(SESSIONS), st.sampled_from(LENDERS)),
        st.tuples(st.just("wait"), st.sampled_from([1.0, LEASE_S / 2, LEASE_S])),
        st.tuples(st.just("end_over"), st.sets(st.sampled_from(SESSIONS))),
        st.tuples(st.just("delete"), st.sampled_from(SESSIONS)),
    )
)


@dataclass
class Model:
    """Each loan as it was lent last, and when it ends."""

    loans: dict[tuple[str, str], tuple[Lent, float]] = field(default_factory=dict)
    replaced: list[str] = field(default_factory=list)
    """The session of each server that a changed loan has no more."""

    def of(self, session_id: str) -> dict[str, McpServer]:
        found: dict[str, McpServer] = {}
        for (session, _), (lent, _) in self.loans.items():
            if session == session_id:
                found = {**lent.servers, **found}
        return found

    def readers(self, session_id: str) -> tuple[str, ...]:
        now, loans = trio.current_time(), self.loans.items()
        return tuple(
            lender
            for (session, lender), (lent, ends_at) in loans
            if session == session_id and lent.reads_files and ends_at > now
        )


@given(actions=actions)
@example(
    actions=[
        ("lend", "s", "me", Lent({"a": McpServer(url="1")}, reads_files=False)),
        ("lend", "s", "me", Lent({"a": McpServer(url="2")}, reads_files=False)),
        ("lend", "s", "me", Lent({}, reads_files=False)),
        ("end_over", set()),
    ]
)
@example(
    actions=[
        ("lend", "s", "me", Lent({"a": McpServer(url="1")}, reads_files=False)),
        ("lend", "s", "me", Lent({"a": McpServer(url="2")}, reads_files=False)),
        ("end_over", {"s"}),
        ("delete", "s"),
    ]
)
def test_loans_agree_with_a_model(actions: list[tuple[object, ...]]) -> None:
    clock = trio.testing.MockClock()
    trio.run(compare, actions, clock, clock=clock)


async def compare(actions: list[tuple[object, ...]], clock: trio.testing.MockClock) -> None:
    loans, model, made = Loans(), Model(), list[ManagedServer]()
    environment = ServerEnvironment(
        {}, {}, (), lambda: (), Path("/"), LoginStore(Path("/nonexistent"))
    )
    loans.share("s", "child")
    loans.share("child", "grandchild")

    def make(name: str, settings: McpServer) -> ManagedServer:
        made.append(ManagedServer(name, settings, environment))
        return made[-1]

    for deed in actions:
        now = trio.current_time()
        match deed:
            case ("lend", str(session), str(lender), Lent() as lent):
                loans.lend(session, lender, lent, make)
                before, _ = model.loans.get((session, lender), (Lent({}, reads_files=False), 0))
                if lent.servers or lent.reads_files:
                    of_now = lent.servers
                    gone = [name for name, one in before.servers.items() if of_now.get(name) != one]
                    model.replaced += [session] * len(gone)
                    model.loans[session, lender] = (lent, now + LEASE_S)
                elif known := model.loans.get((session, lender)):
                    model.loans[session, lender] = (known[0], now)
            case ("ask_no_more", str(session), str(lender)):
                loans.ask_no_more(session, lender)
                if known := model.loans.get((session, lender)):
                    model.loans[session, lender] = (known[0]._replace(reads_files=False), known[1])
            case ("wait", float(seconds)):
                clock.jump(seconds)
            case ("end_over", set(in_use)):
                loans.end_over(lambda session, in_use=in_use: session in in_use)
                model.replaced = [one for one in model.replaced if one in in_use]
                model.loans = {
                    key: loan
                    for key, loan in model.loans.items()
                    if loan[1] > now or key[0] in in_use
                }
            case ("delete", str(session)):
                loans.end_all(session)
                model.replaced = [one for one in model.replaced if one != session]
                model.loans = {k: loan for k, loan in model.loans.items() if k[0] != session}
            case other:
                pytest.fail(str(other))
        for session in SESSIONS:
            of = {name: server.settings for name, server in loans.of(session).items()}
            assert of == model.of(session)
            assert loans.readers(session) == (session, model.readers(session))
        assert loans.of("grandchild") == loans.of("s")
        assert loans.readers("grandchild") == loans.readers("s")
        lent_now = [server for lent, _ in model.loans.values() for server in lent.servers]
        assert len(list(loans)) == len(lent_now) + len(model.replaced)
        # What no loan has any more was ended, unless its session is in use, and nothing else was.
        assert {id(one) for one in made if not one.problem} == {id(one) for one in loans}
