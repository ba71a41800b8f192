"""`tiller init` on a terminal, with the real daemon and local servers at their usual ports."""

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio

from e2e.provider import said
from support.chat import ChatTerminal
from support.daemon import CONFIG, Daemon
from support.http_server import LocalServer, serving, status
from support.terminal import Terminal
from tiller_daemon.models.catalog.local_servers import LOCAL_ENDPOINTS, list_local_servers

KEY = "sk-canary-0123456789"
OLLAMA, VLLM = (urlsplit(dict(LOCAL_ENDPOINTS)[name]).port for name in ("ollama", "vllm"))


@pytest.fixture
def ports() -> Generator[None]:
    """Lock the usual ports of model servers, so that only one worker's test uses them at a time."""
    with Path(tempfile.gettempdir(), f"tiller-test-ports-{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if trio.run(list_local_servers):
            pytest.skip("a model server runs on this machine")
        yield


@pytest.fixture
async def servers(ports: None) -> AsyncGenerator[tuple[LocalServer, LocalServer]]:
    """Run servers at the ports of Ollama, with two models, and vLLM, with one model."""
    async with AsyncExitStack() as stack:
        try:
            ollama = await stack.enter_async_context(serving(said("ready"), port=OLLAMA or 0))
            vllm = await stack.enter_async_context(serving(said("ready"), port=VLLM or 0))
        except* OSError:
            pytest.skip("something else has one of the ports")
        ollama.listing = {"data": [{"id": "qwen"}, {"id": "gemma"}]}
        vllm.listing = {"data": [{"id": "big/model"}]}
        yield ollama, vllm


@pytest.fixture
async def home(new_daemon: Callable[..., Daemon]) -> AsyncGenerator[Daemon]:
    """Yield a home without a configuration, in which `tiller` starts the daemon."""
    daemon = new_daemon("")
    path(daemon).unlink()
    yield daemon
    await tiller(daemon, "daemon", "stop")


def path(daemon: Daemon) -> Path:
    return daemon.places.config / "config.toml"


async def tiller(
    daemon: Daemon, *words: str, **variables: str
) -> "subprocess.CompletedProcess[bytes]":
    return await trio.run_process(
        [sys.executable, "-m", "tiller_client", *words],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        env=daemon.variables | variables,
    )


def answered(server: LocalServer) -> list[str]:
    """Return the models that were asked for an answer."""
    return [json.loads(one.data)["model"] for one in server.received]


async def test_yes_takes_the_first_writes_all_and_tries_once(
    servers: tuple[LocalServer, LocalServer], home: Daemon
) -> None:
    done = await tiller(home, "init", "--yes")
    assert done.returncode == 0, done.stderr
    assert b"tried    ollama/qwen answers" in done.stdout
    written = tomllib.loads(path(home).read_text())
    assert written["model"] == "ollama/qwen"
    assert set(written["providers"]) == {"ollama", "vllm"}
    assert path(home).stat().st_mode & 0o777 == 0o600
    assert [answered(server) for server in servers] == [["qwen"], []]
    assert b"no sessions" in (await tiller(home, "ls")).stdout, "the trial leaves none"
    done = await tiller(home, "exec", "-m", "vllm/big/model", "hello")
    assert (done.returncode, done.stdout) == (0, b"ready\n"), done.stderr


async def test_on_a_terminal_the_user_chooses(
    servers: tuple[LocalServer, LocalServer], home: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in home.variables.items():
        monkeypatch.setenv(name, value)

    def choose() -> tuple[int, str]:
        terminal = Terminal("init", columns=120)
        seen = terminal.wait_for("1 to 5 [1]")
        terminal.type("nonsense")
        terminal.wait_for("'nonsense' is none of them; type a number from 1 to 5", after=seen)
        terminal.type("3")
        return terminal.end(), terminal.screen

    ended, screen = await trio.to_thread.run_sync(choose)
    assert ended == 0, screen
    assert "1  Continue with ChatGPT" in screen
    assert "4  vllm/big/model" in screen
    assert "tried    ollama/gemma answers" in screen
    assert tomllib.loads(path(home).read_text())["model"] == "ollama/gemma"


async def test_yes_prefers_a_model_that_answers_to_one_that_failed(
    servers: tuple[LocalServer, LocalServer], home: Daemon
) -> None:
    servers[0].answers[:] = [status(404, {"error": {"message": "model qwen not loaded"}})]
    done = await tiller(home, "init", "--yes")
    assert (done.returncode, b"tried    vllm/big/model answers" in done.stdout) == (0, True)
    assert b"ollama/qwen does not answer, so vllm/big/model is now the default" in done.stderr
    assert b"model qwen not loaded" in done.stderr
    written = tomllib.loads(path(home).read_text())
    assert (written["model"], set(written["providers"])) == ("vllm/big/model", {"ollama", "vllm"})


async def test_the_user_can_describe_a_server_that_is_not_found_by_itself(
    ports: None, home: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in home.variables.items():
        monkeypatch.setenv(name, value)

    def answer(base_url: str) -> tuple[int, str]:
        terminal = Terminal("init", columns=120)
        terminal.wait_for("1 to 2 [1]")
        terminal.type("2")
        seen = terminal.wait_for("Base URL")
        terminal.type("models.example.com")
        terminal.wait_for("Give an address that begins with http:// or https://", after=seen)
        terminal.type(base_url)
        seen = terminal.wait_for("Variable with the key")
        terminal.type(KEY)
        terminal.wait_for("never the key itself", after=seen)
        terminal.type("")
        terminal.wait_for("Model, as")
        terminal.type("mine")
        return terminal.end(), terminal.screen

    async with serving(said("ready")) as server:
        ended, screen = await trio.to_thread.run_sync(answer, server.base_url + "/")
        assert (ended, "tried    custom/mine answers" in screen) == (0, True), screen
        assert answered(server) == ["mine"]
    written = tomllib.loads(path(home).read_text())
    assert written["model"] == "custom/mine"
    assert written["providers"] == {
        "custom": {"api": "openai_chat", "base_url": server.base_url.rstrip("/")}
    }


async def test_without_a_terminal_nothing_is_guessed(
    servers: tuple[LocalServer, LocalServer], home: Daemon
) -> None:
    done = await trio.run_process(
        [sys.executable, "-m", "tiller_client", "init"],
        stdin=b"",
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        env=home.variables,
    )
    assert done.returncode == 2
    assert b"add --yes" in done.stderr
    assert not path(home).exists()


async def test_a_model_that_does_not_answer_is_said_with_its_words(
    servers: tuple[LocalServer, LocalServer], home: Daemon
) -> None:
    missing = status(404, {"error": {"message": "model qwen not loaded"}})
    servers[0].answers[:] = servers[1].answers[:] = [missing]
    done = await tiller(home, "init", "--yes")
    assert done.returncode == 1
    assert b"ollama/qwen does not answer: " in done.stderr
    assert b"model qwen not loaded" in done.stderr
    assert path(home).exists()


async def test_an_existing_file_is_kept_and_what_it_lacks_is_said(
    servers: tuple[LocalServer, LocalServer], home: Daemon
) -> None:
    text = '# mine\nmodel = "vllm/big/model"\n[providers.vllm]\napi = "openai_chat"\n'
    path(home).write_text(text + 'base_url = "http://127.0.0.1:8000/v1"\n')
    before = path(home).read_bytes()
    done = await tiller(home, "init", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert path(home).read_bytes() == before
    assert (outcome["written"], outcome["trial"]) == (False, "answered")
    assert tomllib.loads(outcome["lacks"]) == {
        "providers": {"ollama": {"api": "openai_chat", "base_url": "http://127.0.0.1:11434/v1"}}
    }
    assert answered(servers[1]) == ["big/model"]


async def test_a_key_in_the_shell_is_found_by_name_and_not_written(home: Daemon) -> None:
    done = await tiller(home, "init", "--no-try", "--json", ANTHROPIC_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"].startswith("anthropic/")
    text = path(home).read_text()
    provider = tomllib.loads(text)["providers"]["anthropic"]
    assert provider["api_key_env"] == "ANTHROPIC_API_KEY"
    assert KEY.encode() not in text.encode() + done.stdout
    assert (await tiller(home, "config", "check")).returncode == 0


@pytest.mark.parametrize(
    ("provider", "given", "used"),
    [
        ("OPENAI", "https://gateway.test/v1", "https://gateway.test/v1"),
        ("OPENAI", "https://gateway.test/v1/", "https://gateway.test/v1"),
        ("ANTHROPIC", "https://gateway.test/a", "https://gateway.test/a/v1"),
        ("ANTHROPIC", "https://gateway.test/v1", "https://gateway.test/v1"),
    ],
)
async def test_a_gateways_key_goes_to_the_gateway(
    ports: None, home: Daemon, provider: str, given: str, used: str
) -> None:
    variables = {f"{provider}_API_KEY": KEY, f"{provider}_BASE_URL": given}
    done = await tiller(home, "init", "--no-try", "--json", **variables)
    assert done.returncode == 0, done.stderr
    (written,) = tomllib.loads(path(home).read_text())["providers"].values()
    assert written["base_url"] == used


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [(["house", "other"], "house"), (["house", "gpt-5"], "gpt-5"), ([], "gpt-5")],
)
async def test_a_gateway_without_the_usual_model_gives_one_that_it_has(
    ports: None, home: Daemon, listed: list[str], chosen: str
) -> None:
    async with serving(said("ready")) as gateway:
        gateway.listing = {"data": [{"id": one} for one in listed]}
        variables = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": gateway.base_url}
        done = await tiller(home, "init", "--yes", "--no-try", "--json", **variables)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"] == f"openai/{chosen}"
    assert tomllib.loads(path(home).read_text())["model"] == f"openai/{chosen}"


async def test_a_daemon_without_the_key_is_named_instead_of_a_trial(
    new_daemon: Callable[..., Daemon],
) -> None:
    daemon = new_daemon(CONFIG)
    path(daemon).unlink()
    daemon.start()
    done = await tiller(daemon, "init", "--yes", ANTHROPIC_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert b"not tried: the running daemon was started without ANTHROPIC_API_KEY" in done.stdout
    assert b"tiller daemon restart" in done.stdout


async def test_where_nothing_is_found_nothing_is_written(ports: None, home: Daemon) -> None:
    done = await tiller(home, "init")
    assert done.returncode == 1
    assert b"no provider was found" in done.stderr
    assert b"OPENAI_API_KEY" in done.stderr
    assert not path(home).exists()


KEYLESS = 'model = "far/m"\n[providers.far]\napi = "openai_responses"\napi_key_env = "NOT_SET"\n'


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("", "! no model can be used now; to set one up: tiller init"),
        (KEYLESS, "! model far/m can't be used:"),
    ],
)
async def test_a_chat_that_has_no_model_says_so_before_a_message_is_written(
    ports: None, home: Daemon, workspace: Path, config: str, said: str
) -> None:
    path(home).write_text(config)
    chat = ChatTerminal.start(home, "chat", "-C", str(workspace))
    try:
        await chat.shows(said)
    finally:
        chat.close()


async def test_a_file_that_is_no_toml_is_kept(home: Daemon) -> None:
    path(home).write_text("model = \n")
    done = await tiller(home, "init")
    assert done.returncode == 1
    assert b"config.toml exists but is not TOML" in done.stderr
    assert path(home).read_text() == "model = \n"


@pytest.mark.parametrize("verb", [("init",), ("config", "show"), ("config", "check")])
async def test_a_fifo_in_place_of_the_file_is_said_and_not_waited_for(
    home: Daemon, verb: tuple[str, ...]
) -> None:
    os.mkfifo(path(home))
    done = await tiller(home, *verb)
    assert done.returncode != 0
    assert b"config.toml is not a regular file" in done.stderr
