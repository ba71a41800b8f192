"""`init`: finds providers, writes a first configuration, and tries the model once.

The daemon knows the well-known keys and looks for servers on this machine. This module checks which
keys are set; where there is none, it offers a login first. It never changes an existing
configuration.
"""

import contextlib
import os
import re
import sys
import tempfile
import time
import tomllib
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.runtime import my_places
from tiller_client.console import complain, flush, pick, print_json, say
from tiller_client.differences import RESTART
from tiller_client.errors import RejectedError, TillerError, UsageError
from tiller_client.first_configuration import configuration_text, missing_text
from tiller_client.rendering.text import one_line, sanitized
from tiller_client.verbs.machine.config import require_regular
from tiller_protocol import PROTOCOL_VERSION
from tiller_protocol.answers import CatalogResult, Created, HelloResult, ReplayResult, Started
from tiller_protocol.catalog import ACCOUNT_DEFAULT, ProviderOffer
from tiller_protocol.events import StatusChanged, TurnEnded
from tiller_protocol.ops import (
    Catalog,
    Hello,
    Interrupt,
    Replay,
    SessionConfigure,
    SessionCreate,
    SessionDelete,
    UserInput,
)
from tiller_protocol.places import CONFIG_FILE
from tiller_protocol.settings import Budget, Settings

NAME = "tiller init"

PROMPT = "This tests the connection. Answer with one word: ready"

TRY_S_MAX = 60.0
"""For one word. A local server may have to load the model first."""

END_S_MAX = 5.0
"""For an interrupted turn to end; the daemon promises less."""

POLL_S = 0.05

MODELS_SHOWN_MAX = 9
"""How many models of one server are offered as a choice."""

NOTHING_FOUND = (
    "no provider was found: none of {variables} is set here, and no model server answers on this "
    "machine. Run tiller login to use a ChatGPT plan, set one of these variables, or start Ollama, "
    "llama.cpp, LM Studio or vLLM. Then run tiller init again. To see tiller work without a model: "
    "tiller demo"
)

LOGIN_CHOICE = "Continue with ChatGPT: log in, and use your Plus or Pro plan"

NOTHING_CHOSEN = "nothing was chosen, so nothing was written"

OTHER_NAME = "custom"
"""The name of a provider that the user describes."""

OTHER_QUESTIONS = (
    (
        "Base URL, such as https://models.example.com/v1: ",
        r"https?://[^\s/]+\S*",
        "Give an address that begins with http:// or https://.",
    ),
    (
        "Variable with the key (empty: no key): ",
        r"([A-Za-z_][A-Za-z0-9_]*)?",
        "Give the name of an environment variable, such as MY_KEY, and never the key itself.",
    ),
    ("Model, as the server names it: ", r"\S+", "Give the name of a model, without spaces."),
)
"""For each question, the regular expression of valid answers, and what to say to others."""

Trial = Literal["answered", "failed", "not tried"]


class Outcome(msgspec.Struct, omit_defaults=True):
    """What `--json` prints."""

    path: str
    """The configuration file."""
    written: bool
    """Whether this has written it; false if there was one."""
    found: list[str]
    """The models that were found, as `provider/model`."""
    model: str
    """The model that was chosen, or the default of the existing file; empty if it has none."""
    lacks: str = ""
    """What the existing file lacks to use what was found."""
    trial: Trial = "not tried"
    """How the trial of the model ended."""
    problem: str = ""
    """Why it did not end well, or was not made."""


def run(arguments: Namespace) -> int:
    """Set up what is missing; 1 if the model does not answer."""
    places = my_places()
    path = places.config / CONFIG_FILE
    existing = _read(path)
    with DaemonConnection(places, NAME) as connection:
        offers = connection.ask(Catalog(offers=True), CatalogResult).offers
        found = [offer for offer in offers if not offer.api_key_env or _is_set(offer.api_key_env)]
        models = [f"{offer.name}/{model}" for offer in found for model in offer.models]
        if existing is None:
            asks = not (arguments.yes or arguments.json)
            if not found and not (asks and sys.stdin.isatty()):
                variables = ", ".join(one.api_key_env for one in offers if one.api_key_env)
                raise TillerError(NOTHING_FOUND.format(variables=variables))
            model = _choose(connection, found, asks=asks)
            _write(path, configuration_text(model, found))
            outcome = Outcome(str(path), written=True, found=models, model=model)
        else:
            model = str(existing.get("model", ""))
            lacks = missing_text(existing, next(iter(models), ""), found)
            outcome = Outcome(str(path), written=False, found=models, model=model, lacks=lacks)
        if not arguments.json:
            _say_written(outcome)
        if arguments.no_try or not outcome.model:
            outcome.problem = "" if outcome.model else "no model is configured"
        else:
            _try(connection, outcome)
            if outcome.trial == "failed" and outcome.written and (arguments.yes or arguments.json):
                outcome = _try_others(connection, outcome, found)
    if arguments.json:
        print_json(outcome)
    else:
        _say_trial(outcome)
    return 1 if outcome.trial == "failed" else 0


def _is_set(variable: str) -> bool:
    return bool(os.environ.get(variable, "").strip())


def _read(path: Path) -> Mapping[str, Any] | None:
    """The values of an existing configuration; `None` if there is none."""
    require_regular(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TillerError(
            f"{path} exists but is not TOML: {error}; correct it or move it away"
        ) from None


def _choose(connection: DaemonConnection, found: list[ProviderOffer], *, asks: bool) -> str:
    """The model to use by default: the only one, the first one, or the one that the user says.

    Adds a provider that the user logs in to, or describes, to `found`.
    """
    choices = [
        f"{offer.name}/{model}" for offer in found for model in offer.models[:MODELS_SHOWN_MAX]
    ]
    is_paid_for = any(offer.api_key_env or offer.account for offer in found)
    offers_login = asks and sys.stdin.isatty() and not is_paid_for
    if choices and not offers_login and (len(choices) == 1 or not asks):
        return choices[0]
    if not sys.stdin.isatty():
        raise UsageError(
            "more than one model was found, and stdin is not a terminal, so you can't be asked; "
            "to take the first one, add --yes"
        )
    say("Which model should be the default?")
    shown = [LOGIN_CHOICE] if offers_login else []
    at = pick([*shown, *map(one_line, choices), "another server, which speaks OpenAI's protocol"])
    if at is None:
        raise UsageError(NOTHING_CHOSEN)
    if at < len(shown):
        found.insert(0, _log_in(connection))
        return f"{found[0].name}/{found[0].models[0]}"
    if at - len(shown) < len(choices):
        return choices[at - len(shown)]
    found.append(_other_server())
    return f"{found[-1].name}/{found[-1].models[0]}"


def _log_in(connection: DaemonConnection) -> ProviderOffer:
    """Log in in a browser; return the provider that this has made available."""
    from tiller_client.verbs import accounts

    result = accounts.log_in(connection, ACCOUNT_DEFAULT, no_browser=False)
    if result.warning:
        raise TillerError(result.warning)
    accounts.show(result, "login")
    offers = connection.ask(Catalog(offers=True), CatalogResult).offers
    if found := [offer for offer in offers if offer.account == ACCOUNT_DEFAULT]:
        return found[0]
    raise TillerError("you are logged in, but OpenAI lists no model; try later: tiller init")


def _other_server() -> ProviderOffer:
    """The provider that the user describes: a server that can't be found by itself."""
    address, variable, model = (_answer(*question) for question in OTHER_QUESTIONS)
    return ProviderOffer(OTHER_NAME, "openai_chat", address.rstrip("/"), (model,), variable)


def _answer(question: str, valid: str, advice: str) -> str:
    """Ask until the answer is `valid`, a regular expression."""
    while True:
        say(question, end="")
        flush()
        line = sys.stdin.readline()
        if not line:
            raise UsageError(NOTHING_CHOSEN)
        if re.fullmatch(valid, line.strip()):
            return line.strip()
        say(advice)


def _write(path: Path, text: str) -> None:
    """Write the file unless there is one."""
    for directory in (*reversed(path.parent.parents), path.parent):
        directory.mkdir(exist_ok=True, mode=0o700)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise TillerError(
            f"another program has just created {path}; it was not overwritten"
        ) from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _try(connection: DaemonConnection, outcome: Outcome) -> None:
    """Ask the model for a word in a session of its own, and note in `outcome` how that ends."""
    hello = connection.ask(Hello(PROTOCOL_VERSION, NAME), HelloResult)
    if lacking := [name for name in hello.missing_keys if _is_set(name)]:
        outcome.problem = (
            f"the running daemon was started without {' and '.join(lacking)}; {RESTART}"
        )
        DaemonConnection.latest = None  # it would say the same at the end
        return
    try:
        outcome.problem = _ask(connection, outcome.model)
    except RejectedError as error:
        outcome.problem = str(error)
    outcome.trial = "failed" if outcome.problem else "answered"


def _try_others(
    connection: DaemonConnection, failed: Outcome, found: list[ProviderOffer]
) -> Outcome:
    """Make the first model that answers of the other providers the default; how that ended."""
    for offer in found:
        other = msgspec.structs.replace(failed, model=f"{offer.name}/{offer.models[0]}", problem="")
        if other.model == failed.model:
            continue
        _try(connection, other)
        if other.trial == "answered":
            Path(failed.path).write_text(configuration_text(other.model, found), encoding="utf-8")
            complain(
                f"{one_line(failed.model)} does not answer, so {one_line(other.model)} is now the "
                f"default model: {one_line(failed.problem)}"
            )
            return other
    return failed


def _ask(connection: DaemonConnection, model: str) -> str:
    """Run one turn without tools; why it failed, or empty if the model has answered."""
    limit = Budget(time_s=TRY_S_MAX)
    settings = Settings(model=model, approve="never", tools=(), turn_budget=limit)
    with tempfile.TemporaryDirectory(prefix="tiller-init-") as workspace:
        created = connection.ask(SessionCreate(workspace, settings=settings), Created)
        session_id = created.session_id
        try:
            # A session that has a title asks no model for one.
            connection.submit(SessionConfigure(session_id, title=NAME))
            connection.ask(UserInput(session_id, PROMPT, delivery="start"), Started)
            return _result(connection, session_id, TRY_S_MAX)
        finally:
            with contextlib.suppress(RejectedError):  # the turn has ended already
                connection.submit(Interrupt(session_id))
                _result(connection, session_id, END_S_MAX, retried=True)
            with contextlib.suppress(RejectedError):
                connection.submit(SessionDelete(session_id))


def _result(
    connection: DaemonConnection, session_id: str, seconds_max: float, *, retried: bool = False
) -> str:
    """Wait for the end of the turn, or, unless it may be `retried`, of its first request."""
    deadline, after = time.monotonic() + seconds_max, 0
    while time.monotonic() < deadline:
        replay = connection.ask(Replay(session_id, after), ReplayResult)
        for event in replay.events:
            match event.body:
                case TurnEnded(outcome="completed"):
                    return ""
                case TurnEnded(outcome=ended, error=error):
                    return error.message if error else f"the turn ended ({ended})"
                case StatusChanged(status="retry", cause=cause) if not retried:
                    return cause
                case _:
                    pass
        after = replay.upto
        time.sleep(POLL_S)
    return f"it did not answer within {seconds_max:g} s"


def _say_written(outcome: Outcome) -> None:
    for model in outcome.found[:MODELS_SHOWN_MAX]:
        say(f"found    {one_line(model)}")
    if len(outcome.found) > MODELS_SHOWN_MAX:
        say(f"found    {len(outcome.found) - MODELS_SHOWN_MAX} more models")
    path = one_line(outcome.path)
    if outcome.written:
        say(f"wrote    {path}, with {one_line(outcome.model)} as the default model")
    elif outcome.lacks:
        say(f"exists   {path}, which was not changed; to use what was found, add:")
        say(f"\n{sanitized(outcome.lacks)}")
    else:
        say(f"exists   {path}; it lacks nothing, so it was not changed")


def _say_trial(outcome: Outcome) -> None:
    """Say how the trial ended, and what to do next."""
    model, problem = one_line(outcome.model), one_line(outcome.problem)
    match outcome.trial:
        case "answered":
            say(f"tried    {model} answers")
        case "failed":
            raise TillerError(f"{model} does not answer: {problem}")
        case "not tried":
            if problem:
                say(f"not tried: {problem}")
    say('next     tiller exec "what is in this directory?"')
    say("         tiller doctor, to check everything")
