"""The agents that `terminals.py` compares: their commands and minimal configurations."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Agent:
    """How to start an agent; `prepare` writes its configuration and returns its variables."""

    name: str
    command: list[str]
    prepare: Callable[[Path, str], dict[str, str]]


def variables_of(home: Path) -> dict[str, str]:
    """Return the environment variables that every agent gets."""
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "SHELL": "/bin/bash",
        "BENCH_KEY": "none",
    }


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _tiller(home: Path, url: str) -> dict[str, str]:
    config = f"""
model = "bench/prose"
approve = "always"
[sandbox]
mode = "full_access"
[providers.bench]
api = "openai_chat"
base_url = "{url}/v1"
api_key_env = "BENCH_KEY"
[models."bench/prose"]
context_window = 400000
max_output = 32000
"""
    _write(home / ".config/tiller/config.toml", config)
    return {}


def _codex(home: Path, url: str) -> dict[str, str]:
    config = f"""
model = "prose"
model_provider = "bench"
model_context_window = 400000
check_for_update_on_startup = false
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.bench]
name = "bench"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "BENCH_KEY"
requires_openai_auth = false
supports_websockets = false
[analytics]
enabled = false
[projects."{home.parent / "work"}"]
trust_level = "trusted"
"""
    _write(home / ".codex/config.toml", config)
    return {}


def _opencode(home: Path, url: str) -> dict[str, str]:
    model = {"name": "prose", "limit": {"context": 400000, "output": 32000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "bench",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"prose": model},
    }
    config = {
        "autoupdate": False,
        "permission": "allow",
        "model": "bench/prose",
        "small_model": "bench/prose",
        "provider": {"bench": provider},
    }
    _write(home / ".config/opencode/opencode.json", json.dumps(config))
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}


def _pi(home: Path, url: str) -> dict[str, str]:
    model = {"id": "prose", "name": "prose", "contextWindow": 400000, "maxTokens": 32000}
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": "none",
        "models": [model],
    }
    _write(home / ".pi/agent/models.json", json.dumps({"providers": {"bench": provider}}))
    return {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}


def agents_in(peers: Path | None) -> Iterator[Agent]:
    """Yield tiller, and the other agents that are installed in a `node_modules`."""
    yield Agent("tiller", [str(Path(sys.executable).parent / "tiller"), "chat"], _tiller)
    if not peers:
        return
    for codex in peers.glob("@openai/codex-linux-*/vendor/*/bin/codex"):
        yield Agent("codex", [str(codex)], _codex)
    opencode = peers / "opencode-ai/bin/opencode.exe"
    if opencode.exists():
        yield Agent("opencode", [str(opencode)], _opencode)
    pi, node = peers / "@mariozechner/pi-coding-agent/dist/cli.js", shutil.which("node")
    if pi.exists() and node:
        yield Agent("pi", [node, str(pi), "--provider", "bench", "--model", "prose"], _pi)
