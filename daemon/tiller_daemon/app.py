"""The composition root: the only module that names concrete tools, stores and transports.

The daemon starts in this order: lock, log, leftovers of a dead daemon, unfinished turns, sockets,
ready. It stops in this order: no new work, turns end, all is committed, sockets close, unlock.
Nurseries and one exit stack keep the order.
"""

import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog
import trio
from msgspec import structs

from tiller_daemon import DAEMON_VERSION
from tiller_daemon.awake import Awake
from tiller_daemon.config import LastingRules, TrustedProjects
from tiller_daemon.config.http_proxy import proxies_of
from tiller_daemon.config.lasting_rules import RULES_FILE
from tiller_daemon.files.changes import recover_changes
from tiller_daemon.hooks.runner import HookRunner
from tiller_daemon.idle_imports import import_when_idle
from tiller_daemon.live_parts import LOGINS_FOLDER, QUARANTINE_FOLDER, LiveParts, mcp_servers
from tiller_daemon.lsp.definitions import list_definitions
from tiller_daemon.lsp.servers import LanguageServers
from tiller_daemon.memory import tune_memory
from tiller_daemon.models.accounts.accounts import LoginAccounts
from tiller_daemon.models.accounts.chatgpt import CHATGPT
from tiller_daemon.models.recording import forget_recording
from tiller_daemon.notify.notifier import Notifier
from tiller_daemon.options import Options
from tiller_daemon.policy.rules import BUILT_IN as BUILT_IN_RULES
from tiller_daemon.policy.rules import evaluate
from tiller_daemon.private import make_directory, tighten
from tiller_daemon.processes.environment import (
    DAEMON_MARKER,
)
from tiller_daemon.processes.fork_server import running_fork_server
from tiller_daemon.processes.process_tree import forbid_tracing, sweep
from tiller_daemon.providers import Providers
from tiller_daemon.sandbox.base import CommandSandbox
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.quarantine import finish_abandoned
from tiller_daemon.sandbox_setup import home, key_files
from tiller_daemon.server import SubmissionServer
from tiller_daemon.service_manager import (
    feed_watchdog,
    notify_service_manager,
)
from tiller_daemon.session.clock import system_clock
from tiller_daemon.session.editor_files import EditorFiles
from tiller_daemon.session.outbox import Publish, publish_to
from tiller_daemon.session.searching import SearchableSessions
from tiller_daemon.session.services import (
    CommandSettings,
    Services,
    SessionFiles,
    ToolSources,
    UserSettings,
)
from tiller_daemon.session.supervisor import Supervisor
from tiller_daemon.snapshots.snapshots import Snapshots
from tiller_daemon.stopping import end_turns, stop_on_signal, stop_when_unreachable
from tiller_daemon.store.base import Log, newest_activity
from tiller_daemon.store.log import open_log
from tiller_daemon.store.search_index import SearchIndex
from tiller_daemon.tools import BUILT_IN
from tiller_daemon.transport.base import Transport
from tiller_daemon.transport.nng import NngTransport
from tiller_daemon.transport.state_directory import HeldDirectories, hold_directories
from tiller_daemon.worktrees.git import Use
from tiller_daemon.worktrees.records import WORKTREES_FOLDER
from tiller_daemon.worktrees.worktrees import Worktrees
from tiller_protocol.codec import MESSAGE_BYTES_MAX
from tiller_protocol.ids import ULID_RANDOM_BYTES, Ulids
from tiller_protocol.places import CONFIG_FILE, DAEMON_OUTPUT_FILE, LOG_FILE

log = structlog.get_logger()

CATALOG_FILE = "catalog.json"
"""The file with the facts that providers report about the models in use."""

TRUST_FILE = "trust.json"
"""The file with the digests of trusted projects."""

SEARCH_FILE = "search.db"
"""The file with the full-text index of sessions, which is made from the log."""

ACCOUNTS_FOLDER = "accounts"
"""The folder for the logins at model providers, with their tokens."""

SPILL_FOLDER = "spill"

JOURNALS_FOLDER = "journals"
"""The folder for journals of unfinished changes of several files."""

SNAPSHOTS_FOLDER = "snapshots"


async def serve(
    options: Options, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run the daemon until it is asked to stop; report the start when frontends can connect.

    Raises `AlreadyRunning` if another daemon has the lock, and `LogError`, `TransportError` or
    `RuntimeDirectoryError` if the daemon can't start. Cancellation stops the daemon without waiting
    for turns.
    """
    async with AsyncExitStack() as stack:
        _make_private(options.places.state)
        held = stack.enter_context(hold_directories(options.places, options.after_crash))
        file = options.places.state / LOG_FILE
        is_new = not file.exists()
        opened = await stack.enter_async_context(open_log(file, held.state.leave_if_taken))
        forbid_tracing()
        if not is_new:  # no process can have a new log's mark
            await sweep(opened.log_id)
        for text in finish_abandoned(options.places.state / QUARANTINE_FOLDER):
            log.warning("quarantined", text=text)
        stack.enter_context(running_fork_server(f"{DAEMON_MARKER}={opened.log_id}"))
        await _restore_files(options.places.state / JOURNALS_FOLDER)
        accounts = LoginAccounts(options.places.state / ACCOUNTS_FOLDER, os.environ, CHATGPT)
        providers = Providers(
            options.configuration,
            os.environ,
            accounts,
            options.places.config / CONFIG_FILE,
            options.places.state / CATALOG_FILE,
        )
        stack.push_async_callback(providers.aclose)
        transport = stack.enter_context(NngTransport(held.runtime.path, MESSAGE_BYTES_MAX))
        held.runtime.note_sockets()
        servers = mcp_servers(options, opened, providers)
        definitions = list_definitions(options.configuration.lsp)
        languages = LanguageServers(definitions, servers.environment.inherited, home())
        live = LiveParts(options, opened, providers, servers, languages)
        hooks = HookRunner(live.variables)
        index = SearchIndex(options.places.state / SEARCH_FILE, opened.log_id)
        stack.callback(index.close)
        observers = _Observers(
            SearchableSessions(opened, index),
            Notifier(live.rules, live.targets.make, opened, live.secret_values),
            Awake(live.keeps_awake, home(), live.own_variables),
        )
        publish = publish_to(transport.publish, *(one.note for one in observers))
        editors = EditorFiles(servers.loans, transport.publish, _id_maker())
        services = _services(options, opened, publish, live, hooks, editors)
        async with trio.open_nursery() as server_nursery:
            await server_nursery.start(accounts.run)
            await server_nursery.start(servers.run)
            await server_nursery.start(languages.run)
            await server_nursery.start(hooks.run)
            server_nursery.start_soon(live.refresh_on_signal)
            supervisor = Supervisor(services, observers.search)
            observers.start(server_nursery, supervisor)
            await _serve_sessions(services, supervisor, held, transport, live, task_status)
            server_nursery.cancel_scope.cancel()
    log.info("stopped")


class _Observers(NamedTuple):
    """What gets all events besides the transport: `note` takes one, and neither waits nor fails."""

    search: SearchableSessions
    notifier: Notifier
    awake: Awake

    def start(self, nursery: trio.Nursery, supervisor: Supervisor) -> None:
        nursery.start_soon(self.search.run)
        nursery.start_soon(self.notifier.run, supervisor.presence.quiet_s)
        nursery.start_soon(self.awake.run, lambda: supervisor.turns_running > 0)


async def _restore_files(journals: Path) -> None:
    """Undo changes of several files that were unfinished when the daemon died."""
    if restored := await trio.to_thread.run_sync(recover_changes, journals):
        log.warning("files_restored", files=restored)


async def _serve_sessions(
    services: Services,
    supervisor: Supervisor,
    held: HeldDirectories,
    transport: Transport,
    live: LiveParts,
    task_status: trio.TaskStatus[None],
) -> None:
    snapshots = services.files.snapshots
    assert snapshots
    worktrees = services.files.worktrees
    assert worktrees
    await snapshots.repair()
    await worktrees.recover()
    providers, token = live.providers, held.runtime.token
    server = SubmissionServer(services, supervisor, token, providers.survey, providers.log_in)
    async with trio.open_nursery() as session_nursery:
        await session_nursery.start(supervisor.run)
        session_nursery.start_soon(providers.run)
        newest = await newest_activity(services.log)
        session_nursery.start_soon(snapshots.run, partial(_has_session, services.log), newest)
        session_nursery.start_soon(worktrees.run)
        session_nursery.start_soon(import_when_idle)
        session_nursery.start_soon(trio.to_thread.run_sync, live.sandboxes.prepare)
        await session_nursery.start(feed_watchdog)
        async with trio.open_nursery() as socket_nursery:
            await socket_nursery.start(stop_on_signal, server)
            socket_nursery.start_soon(transport.serve, server.handle, server.admit)
            socket_nursery.start_soon(stop_when_unreachable, server, held)
            log.info("ready", version=DAEMON_VERSION, log=services.log.path, pid=os.getpid())
            notify_service_manager("READY=1")
            task_status.started()
            tune_memory()
            await server.stopping.wait()
            await end_turns(server, supervisor)
            socket_nursery.cancel_scope.cancel()
        session_nursery.cancel_scope.cancel()


def _services(
    options: Options,
    opened: Log,
    publish: Publish,
    live: LiveParts,
    hooks: HookRunner,
    editors: EditorFiles,
) -> Services:
    spill = options.places.state / SPILL_FOLDER
    built_in, proxies = {tool.name: tool for tool in BUILT_IN}, proxies_of(os.environ)
    providers, servers, search_tools = live.providers, live.servers, live.search_tools
    snapshots = Snapshots(
        options.places.state / SNAPSHOTS_FOLDER,
        {"PATH": os.environ.get("PATH", os.defpath), DAEMON_MARKER: opened.log_id},
        is_secret=partial(_is_secret, live),
        secrets=live.secret_values,
        is_committed=partial(_has_submission, opened),
        own=options.places,
    )

    def forget(session_id: str) -> None:
        shutil.rmtree(spill / session_id, ignore_errors=True)
        servers.loans.end_all(session_id)
        snapshots.forget(session_id)
        if recordings := live.configuration.now.record:
            forget_recording(Path(recordings), session_id)

    return Services(
        log=opened,
        publish=publish,
        clock=system_clock(),
        random=secrets.SystemRandom().random,
        new_id=_id_maker(),
        model=providers.choose,
        discover=live.discover,
        user=_user_settings(options, live),
        tools=ToolSources(
            available=lambda session_id: {
                **built_in,
                **search_tools.tools(),
                **servers.tools(session_id),
            },
            servers=servers,
            language_servers=live.languages,
            hooks=hooks,
            editors=editors,
        ),
        commands=CommandSettings(live.variables, live.secret_values, live.sandboxes, proxies),
        files=SessionFiles(
            spill_directory=lambda session_id: spill / session_id,
            journals=options.places.state / JOURNALS_FOLDER,
            forget=forget,
            snapshots=snapshots,
            worktrees=_worktrees(options, live),
        ),
    )


def _worktrees(options: Options, live: LiveParts) -> Worktrees:
    folder = options.places.state / WORKTREES_FOLDER

    def make_sandbox(place: Path, use: Use) -> CommandSandbox | None:
        policy = structs.replace(
            live.configuration.now.sandbox, mode="workspace_write", network=use == "script"
        )
        return live.sandboxes.make(
            SandboxLevel.READ_ONLY if use == "read" else SandboxLevel.SESSION,
            policy,
            place,
            folder / "spill",
            git_use="work_tree" if use == "git" else "",
            network=use == "script",
        )

    variables = partial(live.variables, "")
    return Worktrees(live.worktrees, make_sandbox, variables, _id_maker(), time.time)


def _user_settings(options: Options, live: LiveParts) -> UserSettings:
    trust, configuration = options.places.state / TRUST_FILE, live.configuration
    return UserSettings(
        configuration=lambda: configuration.now,
        refresh=live.refresh,
        problem=lambda: configuration.problem,
        missing_keys=live.providers.missing_keys,
        has_default_model=lambda: live.providers.has_default,
        projects=TrustedProjects(trust, lambda: configuration.now, options.load_project),
        lasting_rules=LastingRules(options.places.config / RULES_FILE, live.worktrees.checkout_of),
        config_directory=options.places.config.resolve(),
        home=home(),
        platform=sys.platform,
    )


def _is_secret(live: LiveParts, workspace: Path, name: str) -> bool:
    """Whether snapshots leave a file out, because reading needs permission or it holds a key."""
    keys = {os.path.realpath(file) for file in key_files(live.configuration.now)}
    return evaluate("read", name, BUILT_IN_RULES) != "allow" or f"{workspace}/{name}" in keys


async def _has_submission(opened: Log, submission_id: str) -> bool:
    return await opened.submission(submission_id) is not None


async def _has_session(opened: Log, session_id: str) -> bool:
    return await opened.session(session_id) is not None


def _id_maker() -> Callable[[], str]:
    ulids = Ulids()
    return lambda: ulids.make(time.time_ns() // 1_000_000, os.urandom(ULID_RANDOM_BYTES))


def _make_private(state: Path) -> None:
    """Create the state directory, or restrict the permissions of an existing one."""
    make_directory(state)
    folders = (
        ACCOUNTS_FOLDER, SPILL_FOLDER, JOURNALS_FOLDER, SNAPSHOTS_FOLDER, LOGINS_FOLDER,
        QUARANTINE_FOLDER,
    )  # fmt: skip
    files = (CATALOG_FILE, TRUST_FILE, DAEMON_OUTPUT_FILE)
    tighten(state / name for name in ("", *folders, *files))
    for name in (LOG_FILE, SEARCH_FILE):
        tighten(state.glob(f"{name}*"))  # includes SQLite's -wal and -shm files
