"""`gateway` and `fleet`: connects this host with a fleet, and orders work from it."""

import asyncio
import getpass
import platform
import subprocess
import tempfile
import time
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tiller_client.command_line.prompt import read_text
from tiller_client.connecting.runtime import my_places
from tiller_client.console import Console, flush, print_json, say, stdout_theme, tell
from tiller_client.errors import TillerError, UsageError
from tiller_client.fleet.settings import require_packages
from tiller_client.rendering.events import Renderer
from tiller_client.rendering.text import age, cut, dollars, one_line, pad, seconds
from tiller_protocol.settings import Budget

if TYPE_CHECKING:  # these need the extra `fleet`
    from tiller_client.fleet.broker import Broker
    from tiller_client.fleet.orders import Orders
    from tiller_client.fleet.records import Task

PROMPT_CELLS = 60


def run(arguments: Namespace) -> int:
    """Run the gateway or an action of `fleet`."""
    require_packages()
    try:
        if arguments.verb == "gateway":
            return asyncio.new_event_loop().run_until_complete(_gateway())
        return asyncio.run(_act(arguments))
    except ExceptionGroup as group:
        found, others = group.split(TillerError)
        if others or found is None:
            raise
        first = found.exceptions[0]
        raise first from None


async def _gateway() -> int:
    from tiller_client.fleet.gateway import run_gateway
    from tiller_client.fleet.settings import read_settings

    places = my_places()

    def tell_now(sentence: str) -> None:
        tell(sentence)
        flush()

    await run_gateway(read_settings(places), places, tell_now)
    return 0


async def _act(arguments: Namespace) -> int:
    from tiller_client.fleet.broker import Broker
    from tiller_client.fleet.orders import Orders
    from tiller_client.fleet.sealing import make_key
    from tiller_client.fleet.settings import read_settings

    if arguments.action == "key":
        try:
            make_key(Path(arguments.file))
        except FileExistsError:
            raise UsageError(f"{arguments.file} exists already; name a new file") from None
        tell(f"copy {arguments.file} to all hosts of the team, over a safe channel")
        return 0
    by = f"{getpass.getuser()}@{platform.node()}"
    async with Broker(read_settings(my_places()), f"tiller fleet {by}") as broker:
        await broker.prepare()
        orders = Orders(broker, by)
        match arguments.action:
            case "run":
                return await _run(orders, arguments)
            case "ls":
                return await _list(orders, arguments)
            case "status":
                return await _status(orders, arguments)
            case "logs":
                return await _logs(orders, arguments)
            case "fetch":
                return await _fetch(orders, broker, arguments)
            case "send":
                return await _send(orders, arguments)
            case "cancel":
                for word in arguments.tasks:
                    task = await orders.cancel(word)
                    if arguments.json:
                        print_json(task)
                    elif task.state == "cancelled":
                        tell(f"task {task.id} was cancelled before it began")
                    else:
                        tell(f"{task.host} stops task {task.id}")
                return 0
            case _:
                await orders.drain(arguments.name, undo=arguments.undo)
                return 0


async def _run(orders: "Orders", arguments: Namespace) -> int:
    from tiller_client.fleet.records import TaskSpec

    if not arguments.repo:
        raise UsageError("name the repository, as in: --repo https://example.com/me/project@main")
    address, ref = split_address(arguments.repo)
    budget = Budget(cost=arguments.budget) if arguments.budget else None
    spec = TaskSpec(
        read_text(arguments.prompt),
        address,
        ref,
        arguments.dir or "",
        labels=tuple(arguments.label),
        approve=arguments.approve,
        model=arguments.model,
        agent=arguments.agent,
        budget=budget,
        push=arguments.push,
        retries=arguments.retry or 0,
    )
    if arguments.id:
        tasks = [await orders.submit_once(arguments.id, spec)]
    else:
        tasks = await orders.submit(spec, arguments.n or 1)
    for task in tasks:
        print_json(task) if arguments.json else say(task.id)
    if not arguments.wait:
        return 0
    failed = 0

    def show(task: "Task") -> None:
        nonlocal failed
        failed += not (task.report and task.report.outcome == "completed")
        print_json(task) if arguments.json else say(_line(task, time.time()))

    await orders.until_ended(tasks, show)
    return 1 if failed else 0


async def _list(orders: "Orders", arguments: Namespace) -> int:
    from tiller_client.fleet.records import FINAL

    hosts, tasks = await orders.overview()
    shown = [one for one in tasks if arguments.all or one.task.state not in FINAL]
    if arguments.json:
        for line in (*hosts, *shown):
            print_json(line)
        return 0
    theme, now = stdout_theme(), time.time()
    width = max((len(one.info.name) for one in hosts), default=0)
    for one in hosts:
        info = one.info
        state = f"{one.tasks}/{info.slots} slots" if one.is_here else "away"
        if one.is_here and one.is_draining:
            state += ", draining"
        parts = [state, f"seen {age(max(0.0, now - one.seen_at))} ago", *info.labels]
        line = f"{pad(info.name, width)}  {'  '.join(parts)}"
        say(line if one.is_here else theme.dim(line))
        if info.problem:
            say(f"  {one_line(info.problem)}")
    if not hosts:
        say("no host has joined the fleet yet; on each of them run: tiller gateway")
    for task_line in shown:
        say(_line(task_line.task, task_line.changed_at))
    return 0


async def _status(orders: "Orders", arguments: Namespace) -> int:
    from tiller_client.fleet.records import decode_task

    if answer := await orders.answer(arguments.task):
        print_json(answer)
        return 0
    record = await orders.find(arguments.task)
    task = decode_task(record.value)
    if arguments.json:
        print_json(task)
        return 0
    spec, report = task.spec, task.report
    say(f"task {task.id} by {one_line(task.by)}")
    say(f"  {one_line(spec.prompt)}")
    say(f"  {one_line(spec.repository)} {one_line(spec.ref)}".rstrip())
    seen = age(max(0.0, time.time() - record.written_at))
    state = {
        "unknown": f"unknown: {task.host} is lost; last change {seen} ago",
        "running": f"{'stopping' if task.cancel else 'running'} on {task.host} since {seen}",
    }.get(task.state, task.state)
    say(f"  {state}, attempt {task.attempt}")
    if task.session_id:
        say(f"  session {task.session_id}@{task.host}")
    if report:
        say(f"  {_ending(task)}")
        if report.message:
            say(f"  {one_line(report.message)}")
        if report.bundle:
            say(f"  get its branch with: tiller fleet fetch {task.short_id}")
    return 0


async def _send(orders: "Orders", arguments: Namespace) -> int:
    from tiller_client.fleet.orders import Kept

    session, at, host = arguments.target.partition("@")
    if not at:
        raise UsageError(f"name the host, too: {session}@HOST")
    done = await orders.send(host, session, read_text(arguments.text), arguments.wait or 0.0)
    if arguments.json:
        print_json(done)
    elif isinstance(done, Kept):
        tell(
            f"{host} is away; the broker keeps the message for {seconds(done.wait_s)}; "
            f"for the answer, run: tiller fleet status {done.submission_id}"
        )
    return 0


async def _logs(orders: "Orders", arguments: Namespace) -> int:
    from tiller_client.fleet.records import decode_task

    session, _, host = arguments.task.partition("@")
    if not host:
        task = decode_task((await orders.find(arguments.task)).value)
        session, host = task.session_id, task.host
        if not session:
            raise UsageError(f"task {task.id} has no session yet")
    console = Console()
    renderer = Renderer(console.theme, console.width, wraps=console.terminal, whole=False)
    found = False
    async for event in orders.events(host, session, follow=arguments.follow):
        found = True
        if arguments.json:
            print_json(event)
        else:
            console.show(renderer.feed(event))
    if not found:
        raise TillerError(f"nothing was published of session {session} on {host}")
    if not arguments.json:
        console.show(renderer.end_line())
    return 0


async def _fetch(orders: "Orders", broker: "Broker", arguments: Namespace) -> int:
    from tiller_client.fleet.objects import get_object
    from tiller_client.fleet.records import decode_task

    task = decode_task((await orders.find(arguments.task)).value)
    report = task.report
    if report is None or not report.bundle:
        where = "it was pushed" if report and report.pushed else "it has no commits"
        raise UsageError(f"task {task.id} has no bundle: {where if report else task.state}")
    data = await get_object(broker, report.bundle)
    with tempfile.NamedTemporaryFile(prefix="tiller-", suffix=".bundle") as file:
        file.write(data)
        file.flush()
        branch = f"refs/heads/{report.branch}"
        command = ["git", "fetch", "--quiet", file.name, f"{branch}:{branch}"]
        fetch = partial(subprocess.run, command, capture_output=True, text=True, check=False)
        done = await asyncio.to_thread(fetch)
    if done.returncode:
        raise TillerError(f"git fetch failed: {done.stderr.strip()}")
    if arguments.json:
        print_json(report)
    else:
        tell(f"the branch {report.branch} has its {report.commits} commits")
    return 0


def split_address(word: str) -> tuple[str, str]:
    """Split `URL[@REF]`; an `@` before a host name belongs to the address."""
    begin = word.find("://") + 3 if "://" in word else 0
    path = word.find("/" if begin else ":", begin)
    head, at, ref = word[max(path, 0) :].rpartition("@")
    if not at or not ref or (path < 0 and ":" in ref):
        return word, ""
    return word[: max(path, 0)] + head, ref


def _line(task: "Task", changed_at: float) -> str:
    """One line of a list."""
    when = age(max(0.0, time.time() - changed_at))
    state = f"{task.state} on {task.host}" if task.host else task.state
    what = _ending(task) if task.report else state
    return f"{task.short_id}  {what}  {when}  {cut(one_line(task.spec.prompt), PROMPT_CELLS)}"


def _ending(task: "Task") -> str:
    report = task.report
    assert report
    parts: list[str] = [task.state if task.state == "cancelled" else report.outcome]
    parts += [f"on {task.host}"] if task.host else []
    parts += [f"{report.commits} commits on {report.branch}"] if report.commits else []
    parts += [dollars(report.cost)] if report.cost is not None else []
    parts += [one_line(report.problem)] if report.problem else []
    return ", ".join(parts)
