"""The ACP methods that a client calls, each in a function of its own."""

import contextlib
from collections.abc import Callable, Generator
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, UnsetType, structs

from tiller_client.acp import schema
from tiller_client.acp.authentication import CHATGPT, NO_MODEL, SETUP, Authentication
from tiller_client.acp.directories import rules_for
from tiller_client.acp.editor_files import EditorFiles
from tiller_client.acp.lending import Loan, lent_servers
from tiller_client.acp.options import DEFAULT, MODE_OPTION
from tiller_client.acp.rpc import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    Message,
    Peer,
    RequestId,
    RpcError,
    RpcFailure,
)
from tiller_client.acp.session import EditorSession
from tiller_client.acp.updates import ListedSession, ListResult, Opened
from tiller_client.acp.view import iso_time
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.console import complain
from tiller_client.errors import RejectedError, TillerError
from tiller_client.following.catchup import FRONTEND_ID
from tiller_protocol.answers import Created, SessionListResult
from tiller_protocol.lending import LentServer
from tiller_protocol.ops import (
    QueueEdit,
    SessionConfigure,
    SessionCreate,
    SessionDelete,
    SessionFork,
    SessionList,
)
from tiller_protocol.settings import Settings

NAME = "tiller acp"

_BAD_INPUT = frozenset({"bad_message", "empty_input", "too_large", "invalid_settings"})

_DAEMON_FAULTS = frozenset({"internal", "shutting_down", "unavailable"})
"""The daemon's other rejections say that the client can't do this now."""


class _Method(NamedTuple):
    params: type[Struct]
    run: Callable[[Any, RequestId], object]
    """Returns the result, `None` if it is empty, or `LATER`."""


LATER = object()
"""Returned by a method whose answer is sent only when a turn or a login has ended."""


class Agent:
    """All sessions of one client; new sessions get `settings`."""

    def __init__(self, peer: Peer, settings: Settings) -> None:
        self._peer = peer
        self._settings = settings
        self._client = schema.ClientCapabilities()
        self._connection: DaemonConnection | None = None
        self._files: EditorFiles | None = None
        self._authentication = Authentication(peer)
        self._sessions: dict[str, EditorSession] = {}
        self._directories: dict[str, str] = {}
        """The directory that the client has named for each session."""
        self._methods = {
            "authenticate": _Method(schema.AuthenticateParams, self._authenticate),
            "session/new": _Method(schema.NewParams, self._new),
            "session/load": _Method(schema.OpenParams, self._load),
            "session/resume": _Method(schema.OpenParams, self._resume),
            "session/fork": _Method(schema.OpenParams, self._fork),
            "session/list": _Method(schema.ListParams, self._list),
            "session/close": _Method(schema.SessionParams, self._close),
            "session/delete": _Method(schema.SessionParams, self._delete),
            "session/prompt": _Method(schema.PromptParams, self._prompt),
            "session/cancel": _Method(schema.SessionParams, self._cancel),
            "session/set_mode": _Method(schema.SetModeParams, self._set_mode),
            "session/set_config_option": _Method(schema.SetOptionParams, self._set_option),
            "$/cancel_request": _Method(schema.CancelRequestParams, self._cancel_request),
            "_tiller/steer": _Method(schema.PromptParams, self._steer),
            "_tiller/queue": _Method(schema.PromptParams, self._queue),
            "_tiller/queue_edit": _Method(schema.QueueEditParams, self._queue_edit),
        }

    @property
    def sources(self) -> list[int]:
        """The descriptors to wait for."""
        files = self._files.sources if self._files else []
        return files + [source for one in self._sessions.values() for source in one.sources]

    @property
    def wait_s_max(self) -> float:
        """The longest time until the next `advance`."""
        waits = (one.wait_s_max for one in self._sessions.values())
        return min((self._authentication.wait_s_max, *waits))

    def close(self) -> None:
        """End all loans and a login, and close the connection; running turns continue."""
        if self._files:
            self._files.close()
        if self._connection:
            # If the daemon is gone, its loans are gone too: don't start another to end them.
            for session in self._sessions.values():
                with contextlib.suppress(TillerError):
                    session.leave()
            with contextlib.suppress(TillerError):
                self._authentication.close()
            self._connection.close()

    def advance(self) -> None:
        """Send what is new: of all sessions, of a login, about the editor's files."""
        self._authentication.advance()
        if self._files:
            self._files.advance(self._directories.get)
        for session in list(self._sessions.values()):
            try:
                session.advance()
            except TillerError as error:
                session.fail(str(error))
                # After a full disk, the session can go on.
                if not (isinstance(error, RejectedError) and error.is_cut_off):
                    complain(f"session {session.id}: {error}")
                    self._drop(session.id)

    def handle(self, message: Message) -> None:
        """Handle a request or a notification."""
        is_request = not isinstance(message.id, UnsetType)
        request_id = None if isinstance(message.id, UnsetType) else message.id
        try:
            result = self._run(message, request_id)
        except RpcFailure as failure:
            error = failure.error
        except RejectedError as rejected:
            error = _error_of(rejected)
        except TillerError as failure:
            error = RpcError(INTERNAL_ERROR, str(failure))
        else:
            if is_request and result is not LATER:
                self._peer.respond(request_id, {} if result is None else result)
                self._after(result)
            return
        if is_request:
            self._peer.fail(request_id, error)

    def _run(self, message: Message, request_id: RequestId) -> object:
        name = message.method or ""
        if name == "initialize":
            return self._initialize(_convert(message, schema.InitializeParams))
        if name not in self._methods:
            raise RpcFailure(METHOD_NOT_FOUND, f"there is no method {name}")
        if self._connection is None:
            raise RpcFailure(INVALID_REQUEST, f"{name} was called before initialize")
        method = self._methods[name]
        return method.run(_convert(message, method.params), request_id)

    def _initialize(self, params: schema.InitializeParams) -> object:
        self._client = params.client
        if self._connection is None:
            self._connection = connect(params.client_name or NAME)
        if self._client.reads_files and self._files is None:
            self._files = EditorFiles(self._connection, self._peer, FRONTEND_ID)
        extensions = [name for name in self._methods if name.startswith("_tiller/")]
        return {
            "protocolVersion": schema.PROTOCOL_VERSION,
            "agentInfo": {"name": "tiller", "title": "tiller", "version": version("tillerd")},
            "authMethods": [CHATGPT, SETUP] if params.client.terminal_login else [CHATGPT],
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {
                    "list": {},
                    "resume": {},
                    "close": {},
                    "delete": {},
                    "fork": {},
                    "additionalDirectories": {},
                },
                "_meta": {"tiller": {"methods": extensions}},
            },
        }

    def _authenticate(self, params: schema.AuthenticateParams, request_id: RequestId) -> object:
        began = self._authentication.begin(self._daemon, params.method_id, request_id)
        return LATER if began else None

    def _new(self, params: schema.NewParams, _id: RequestId) -> object:
        rules = rules_for(params.additional_directories, self._settings.permissions or ())
        settings = structs.replace(self._settings, permissions=rules or None)
        servers = lent_servers(params.mcp_servers or ())
        created = self._daemon.ask(SessionCreate(params.cwd, settings=settings), Created)
        with self._deleted_on_failure(created.session_id):
            opened = self._open(created.session_id, params.cwd, servers)
            if problem := self._sessions[created.session_id].model_problem:
                raise RpcFailure(AUTH_REQUIRED, NO_MODEL.format(problem=problem))
            return opened

    def _load(self, params: schema.OpenParams, _id: RequestId) -> object:
        opened = self._resume(params, _id)
        self._sessions[params.session_id].show_history()
        return opened

    def _resume(self, params: schema.OpenParams, _id: RequestId) -> Opened:
        servers = lent_servers(params.mcp_servers or ())
        opened = self._open(params.session_id, params.cwd, servers)
        session = self._sessions[params.session_id]
        before = session.snapshot.settings.permissions or ()
        rules = rules_for(params.additional_directories, before)
        if rules != before:
            settings = Settings(permissions=rules)
            self._daemon.submit(SessionConfigure(params.session_id, settings))
        return opened

    def _fork(self, params: schema.OpenParams, _id: RequestId) -> object:
        created = self._daemon.ask(SessionFork(params.session_id), Created)
        with self._deleted_on_failure(created.session_id):
            return self._resume(structs.replace(params, session_id=created.session_id), _id)

    def _list(self, params: schema.ListParams, _id: RequestId) -> object:
        op = SessionList(params.cwd, after=params.cursor)
        page = self._daemon.ask(op, SessionListResult)
        sessions = tuple(
            ListedSession(
                one.session_id, one.workspace, one.title or None, iso_time(one.updated_at)
            )
            for one in page.sessions
        )
        return ListResult(sessions, page.next)

    def _close(self, params: schema.SessionParams, _id: RequestId) -> None:
        session = self._session(params.session_id)
        session.cancel()
        session.leave()
        self._drop(session.id)

    def _delete(self, params: schema.SessionParams, _id: RequestId) -> None:
        self._daemon.submit(SessionDelete(params.session_id))
        self._drop(params.session_id)

    def _prompt(self, params: schema.PromptParams, request_id: RequestId) -> object:
        self._session(params.session_id).prompt(request_id, params.prompt)
        return LATER

    def _cancel(self, params: schema.SessionParams, _id: RequestId) -> None:
        self._session(params.session_id).cancel()

    def _cancel_request(self, params: schema.CancelRequestParams, _id: RequestId) -> None:
        if self._authentication.cancel(params.request_id):
            return
        for session in self._sessions.values():
            if session.has_prompt(params.request_id):
                session.cancel()
                break

    def _set_mode(self, params: schema.SetModeParams, _id: RequestId) -> None:
        self._configure(params.session_id, MODE_OPTION, params.mode_id)

    def _set_option(self, params: schema.SetOptionParams, _id: RequestId) -> object:
        session = self._session(params.session_id)
        if params.config_id not in {option.id for option in session.opened.config_options}:
            raise RpcFailure(INVALID_PARAMS, f"there is no option {params.config_id}")
        self._configure(params.session_id, params.config_id, params.value)
        return {"configOptions": session.opened.config_options}

    def _steer(self, params: schema.PromptParams, _id: RequestId) -> object:
        return self._session(params.session_id).steer(params.prompt)

    def _queue(self, params: schema.PromptParams, _id: RequestId) -> object:
        return self._session(params.session_id).queue(params.prompt)

    def _queue_edit(self, params: schema.QueueEditParams, _id: RequestId) -> None:
        fields = structs.asdict(params)
        self._daemon.submit(_checked(fields, QueueEdit))

    @property
    def _daemon(self) -> DaemonConnection:
        assert self._connection is not None
        return self._connection

    def _session(self, session_id: str) -> EditorSession:
        if session_id not in self._sessions:
            raise RpcFailure(
                RESOURCE_NOT_FOUND,
                f"session {session_id} is not open here; open it with session/load",
            )
        return self._sessions[session_id]

    def _open(self, session_id: str, directory: str, servers: tuple[LentServer, ...]) -> Opened:
        if session_id in self._sessions and not servers:
            self._sessions[session_id].leave()
        reads_files = self._client.reads_files
        loan = Loan(self._daemon, session_id, FRONTEND_ID, servers, reads_files=reads_files)
        session = EditorSession(self._daemon, self._peer, self._client, loan, session_id, directory)
        self._drop(session_id)
        self._sessions[session_id] = session
        self._directories[session_id] = directory
        return structs.replace(session.opened, session_id=session_id)

    def _after(self, result: object) -> None:
        """Send the updates that the client expects after the answer, not before."""
        if isinstance(result, Opened) and result.session_id:
            self._sessions[result.session_id].announce()

    @contextlib.contextmanager
    def _deleted_on_failure(self, session_id: str) -> Generator[None]:
        """Delete the new session if the block can't open it."""
        try:
            yield
        except (RpcFailure, TillerError):
            self._drop(session_id)
            with contextlib.suppress(TillerError):
                self._daemon.submit(SessionDelete(session_id))
            raise

    def _configure(self, session_id: str, name: str, value: object) -> None:
        """Change a setting, and wait until its event has arrived here."""
        session = self._session(session_id)
        if value == DEFAULT:
            op = SessionConfigure(session_id, clear=(name,))
        else:
            op = SessionConfigure(session_id, _checked({name: value}, Settings))
        self._daemon.submit(op)
        session.catch_up()

    def _drop(self, session_id: str) -> None:
        self._directories.pop(session_id, None)
        if session := self._sessions.pop(session_id, None):
            session.close()


def _convert(message: Message, params: type[Struct]) -> Any:  # noqa: ANN401 - of that type
    """Decode the parameters of a message; raises `RpcFailure` if they are invalid."""
    try:
        return schema.read(message.params, params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RpcFailure(INVALID_PARAMS, f"{message.method}: {error}") from None


def _checked(fields: dict[str, Any], kind: type[Any]) -> Any:  # noqa: ANN401 - of that type
    """Build a struct from these fields; raises `RpcFailure` if a field has the wrong type."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise RpcFailure(INVALID_PARAMS, str(error)) from None


def _error_of(rejected: RejectedError) -> RpcError:
    """Convert the daemon's rejection to a JSON-RPC error."""
    code = INVALID_REQUEST
    if rejected.code == "not_found":
        code = RESOURCE_NOT_FOUND
    elif rejected.code in _BAD_INPUT:
        code = INVALID_PARAMS
    elif rejected.code in _DAEMON_FAULTS:
        code = INTERNAL_ERROR
    return RpcError(code, str(rejected), {"code": rejected.code})
