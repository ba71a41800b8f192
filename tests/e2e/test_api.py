"""The library for frontends in Python: blocking, in trio and in asyncio, over real sockets."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import trio

from e2e.gates import Gate
from e2e.words import bash, calls, text
from support.daemon import Daemon
from support.frontend import TIMEOUT_S, Frontend, new_id
from tiller_client.api import blocking, for_asyncio, for_trio
from tiller_client.api.threaded import ThreadedClient
from tiller_client.errors import RejectedError
from tiller_daemon.models.scripted import ScriptStep, TextPart
from tiller_protocol.events import Event, RequestOpened, TurnEnded, TurnStarted
from tiller_protocol.ops import SessionConfigure, UserInput
from tiller_protocol.settings import Settings

_Result = TypeVar("_Result")

ALWAYS = Settings(approve="always")
NOISY = ScriptStep(parts=(TextPart("words " * 100, 100), bash("seq 100")))

Asynchronously = Callable[[Callable[[type[ThreadedClient]], Coroutine[Any, Any, _Result]]], Any]


async def in_trio(main: Callable[[type[ThreadedClient]], Awaitable[_Result]]) -> _Result:
    with trio.fail_after(TIMEOUT_S):
        return await main(for_trio.Client)


async def in_asyncio(main: Callable[[type[ThreadedClient]], Coroutine[Any, Any, _Result]]) -> Any:
    """Run `main` in an asyncio loop, in another thread than trio's loop."""

    async def limited() -> _Result:
        return await asyncio.wait_for(main(for_asyncio.Client), TIMEOUT_S)

    return await trio.to_thread.run_sync(lambda: asyncio.run(limited()))


@pytest.fixture(params=[in_trio, in_asyncio], ids=["trio", "asyncio"])
def asynchronously(request: pytest.FixtureRequest) -> Asynchronously[Any]:
    return request.param


@pytest.mark.parametrize("name", ["blocking", "for_trio", "for_asyncio"])
async def test_the_example_in_the_docstring_runs(
    daemon: Daemon, workspace: Path, name: str
) -> None:
    daemon.play("main", calls(bash("ls")), text("a greeting", 3))
    documentation = import_module(f"tiller_client.api.{name}").__doc__
    assert documentation
    example = textwrap.dedent(documentation.partition("::\n")[2])
    done = await trio.run_process(
        [sys.executable, "-W", "error", "-c", example],
        cwd=workspace,
        env=daemon.variables,
        capture_stdout=True,
    )
    assert done.stdout.decode() == "a greetingcompleted\n"


def until_turn_ends(stream: blocking.EventStream) -> list[Event]:
    events: list[Event] = []
    for event in stream:
        events.append(event)
        if isinstance(event.body, TurnEnded):
            break
    return events


@pytest.mark.promise("G2")
async def test_a_blocking_stream_goes_on_after_the_daemon_was_killed_and_started(
    new_daemon: Callable[[], Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)

    def use() -> list[Event]:
        with blocking.Client("library", environ=daemon.variables) as client:
            session = client.create_session(workspace, msgspec.structs.replace(ALWAYS, model=model))
            with session.follow() as stream:
                session.send("go")
                events = until_turn_ends(stream)
                daemon.restart()
                session.send("again")
                events += until_turn_ends(stream)
            assert list(stream) == []
        return events

    model = daemon.script(*[NOISY, text("done")] * 2)
    events = await trio.to_thread.run_sync(use)
    await frontend.reconnect()
    log = await frontend.log(events[0].session_id)
    assert events == log[: len(events)]
    await frontend.close()


@pytest.mark.promise("G2")
async def test_an_asynchronous_stream_goes_on_after_the_daemon_was_killed_and_started(
    new_daemon: Callable[[], Daemon],
    workspace: Path,
    nursery: trio.Nursery,
    asynchronously: Asynchronously[list[Event]],
) -> None:
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    model = daemon.script(*[NOISY, text("done")] * 2)

    async def use(kind: type[ThreadedClient]) -> list[Event]:
        events: list[Event] = []
        async with kind("library", environ=daemon.variables) as client:
            settings = msgspec.structs.replace(ALWAYS, model=model)
            session = await client.create_session(workspace, settings)
            async with session.follow() as stream:
                await session.send("go")
                async for event in stream:
                    events.append(event)
                    if not isinstance(event.body, TurnEnded):
                        continue
                    if sum(isinstance(one.body, TurnEnded) for one in events) == 2:
                        break
                    daemon.restart()
                    await session.send("again")
        return events

    events = await asynchronously(use)
    await frontend.reconnect()
    log = await frontend.log(events[0].session_id)
    assert events == log[: len(events)]
    await frontend.close()


async def test_requests_are_answered_and_a_turn_is_interrupted(
    daemon: Daemon, workspace: Path, asynchronously: Asynchronously[list[str]]
) -> None:
    gate = Gate(workspace)
    model = daemon.script(calls(bash("touch a")), calls(bash(f"touch b; {gate.command}")))

    async def use(kind: type[ThreadedClient]) -> list[str]:
        outcomes: list[str] = []
        async with kind("library", environ=daemon.variables) as client:
            session = await client.create_session(workspace, Settings(model=model, approve="ask"))
            await session.send("go")
            opened = 0
            async for event in session.follow():
                match event.body:
                    case RequestOpened(request=request):
                        opened += 1
                        await session.answer(request.id, "once")
                        if opened == 2:
                            await asyncio_or_trio(gate.reached)
                            await session.interrupt()
                    case TurnEnded(outcome=outcome):
                        outcomes.append(outcome)
                        break
            snapshot = await session.snapshot()
            assert snapshot.turn is None
            assert (await client.session(session.session_id).snapshot()).turns == 1
        return outcomes

    async def asyncio_or_trio(wait: Callable[[], Awaitable[None]]) -> None:
        """The gate is trio's."""
        if asynchronously is in_trio:
            await wait()
        else:
            await asyncio.to_thread(trio.run, wait)

    assert await asynchronously(use) == ["interrupted"]
    gate.close()


async def test_a_cancelled_wait_loses_no_event(daemon: Daemon, workspace: Path) -> None:
    model = daemon.script(*[text("many words " * 20, 20)] * 3)
    settings = msgspec.structs.replace(ALWAYS, model=model)
    async with for_trio.Client("library", environ=daemon.variables) as client:
        session = await client.create_session(workspace, settings)
        seqs: list[int] = []
        async with session.follow() as stream:
            for _ in range(3):
                await session.send("go")
                ended = False
                while not ended:
                    with trio.move_on_after(0.002):
                        event = await anext(stream)
                        seqs.append(event.seq)
                        ended = isinstance(event.body, TurnEnded)
    assert seqs == list(range(1, len(seqs) + 1))


async def test_many_streams_that_wait_keep_up_no_submission(
    daemon: Daemon, workspace: Path, asynchronously: Asynchronously[int]
) -> None:
    model = daemon.script(text("done"))

    async def use(kind: type[ThreadedClient]) -> int:
        async with kind("library", environ=daemon.variables) as client:
            settings = msgspec.structs.replace(ALWAYS, model=model)
            session = await client.create_session(workspace, settings)
            head = (await session.snapshot()).seq
            if kind is for_trio.Client:
                async with trio.open_nursery() as nursery:
                    for _ in range(50):
                        nursery.start_soon(anext, session.follow(head))
                    await session.send("go")
            else:
                waiting = [asyncio.create_task(anext(session.follow(head))) for _ in range(50)]  # type: ignore[arg-type]
                await session.send("go")
                assert {event.seq for event in await asyncio.gather(*waiting)} == {head + 1}
            return head

    assert await asynchronously(use)


async def test_the_same_submission_id_is_executed_once(daemon: Daemon, workspace: Path) -> None:
    def use() -> None:
        with blocking.Client("library", environ=daemon.variables) as client:
            model = daemon.script(text("done"), text("again"))
            session = client.create_session(workspace, msgspec.structs.replace(ALWAYS, model=model))
            chosen = new_id()
            op = UserInput(session.session_id, "go")
            first = client.submit(op, submission_id=chosen)
            until_turn_ends(session.follow())
            assert client.submit(op, submission_id=chosen) == first
            assert session.snapshot().turns == 1

    await trio.to_thread.run_sync(use)


async def test_threads_share_a_client_and_closing_it_ends_their_streams(
    daemon: Daemon, workspace: Path
) -> None:
    def use() -> None:
        started = threading.Barrier(4, timeout=TIMEOUT_S)

        def follow() -> None:
            stream = session.follow()
            next(stream)
            started.wait()
            assert not [event for event in stream if isinstance(event.body, TurnStarted)]

        with blocking.Client("library", environ=daemon.variables) as client:
            session = client.create_session(workspace, ALWAYS)
            threads = [threading.Thread(target=follow) for _ in range(3)]
            for thread in threads:
                thread.start()
            started.wait()
            client.submit(SessionConfigure(session.session_id, title="shared"))
        for thread in threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()

    await trio.to_thread.run_sync(use)


async def test_what_the_daemon_refuses_is_an_error_with_its_answer(
    daemon: Daemon, asynchronously: Asynchronously[None]
) -> None:
    async def use(kind: type[ThreadedClient]) -> None:
        async with kind("library", environ=daemon.variables) as client:
            nowhere = client.session("01NOSUCH")
            with pytest.raises(RejectedError) as refused:
                await nowhere.send("go")
            assert refused.value.code == "not_found"
            async with nowhere.follow() as stream:
                with pytest.raises(RejectedError, match="no session"):
                    await anext(stream)

    await asynchronously(use)


def test_the_library_for_plain_python_imports_neither_trio_nor_asyncio() -> None:
    program = "import sys, tiller_client.api.blocking; print({'trio', 'asyncio'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"set()"
