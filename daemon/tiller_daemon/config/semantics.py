"""Checks beyond types: names, addresses, fields that exclude each other. Pure.

Each source is checked before it is merged. No message contains a value, because it may be a secret.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from tiller_daemon.config.language_servers import KNOWN
from tiller_daemon.config.model_schema import KeyPlaces
from tiller_daemon.config.request_options import options_problem
from tiller_daemon.config.source import Key, Source, Table

KEY_FIELDS = KeyPlaces.__struct_fields__
"""The fields for the place of a key; at most one of them is set."""

SECRET_FIELDS = tuple(f"client_secret_{field.removeprefix('api_key_')}" for field in KEY_FIELDS)
"""The fields for the place of an OAuth client's secret."""

SERVER_NAME_CHARS_MAX = 32
"""The longest name of an MCP server; with the tool's name it must fit into the providers' limit of
64 characters."""

EXPECTED_VARIABLE = "expected the name of a variable: put the key itself into that variable"
EXPECTED_URL = "expected a URL that begins with http:// or https:// and has no password"
EXPECTED_PROXY = (
    'expected "" for no proxy, or an address without a password, such as http://host:3128; an '
    "address with a password belongs in the variable HTTPS_PROXY"
)
EXPECTED_MODEL = "expected `provider/model`"

_HOOK_FIELDS = {
    "tool": ("tool_before", "tool_after"),
    "on_failure": ("turn_start", "tool_before"),
}
"""The fields that only hooks at certain moments can have, with these moments."""

_SERVER_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{SERVER_NAME_CHARS_MAX}}}\Z")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check_semantics(values: Table, source: Source) -> None:
    """Check the values of one source; raises `ConfigurationError`."""
    if found := next(_problems(values), None):
        raise source.error("invalid_value", *found)


def _problems(values: Table) -> Iterator[tuple[Key, str]]:
    """Yield the keys of invalid values, and the problems as clauses."""
    for name, provider in values.get("providers", {}).items():
        key: Key = ("providers", name)
        if "/" in name or not name:
            yield key, "expected a name without slashes"
        if not _VARIABLE_NAME.match(provider.get("api_key_env", "X")):
            yield (*key, "api_key_env"), EXPECTED_VARIABLE
        if (proxy := provider.get("proxy")) and not _is_proxy(proxy):
            yield (*key, "proxy"), EXPECTED_PROXY
        if not _is_http(provider.get("base_url", "http://host")):
            yield (*key, "base_url"), EXPECTED_URL
    for name, server in values.get("mcp", {}).items():
        if found := mcp_server_problem(name, server):
            yield ("mcp", name, *([found.field] if found.field else ())), found.problem
    for name, server in values.get("lsp", {}).items():
        yield from _language_server_problems(name, server)
    for section in ("sourcegraph", "web_search"):
        settings = values.get(section, {})
        if not _is_http(settings.get("endpoint", "http://host")):
            yield (section, "endpoint"), EXPECTED_URL
        if not _VARIABLE_NAME.match(settings.get("api_key_env", "X")):
            yield (section, "api_key_env"), EXPECTED_VARIABLE
    for index, hook in enumerate(values.get("hooks", [])):
        yield from _hook_problems(index, hook)
    for name in values.get("models", {}):
        if not _is_model_name(name):
            yield ("models", name), EXPECTED_MODEL
    for options_key, options in _options_in(values):
        if problem := options_problem(options):
            yield options_key, problem
    for name in ("model", "small_model", "compaction_model"):
        if name in values and not _is_model_name(values[name]):
            yield (name,), EXPECTED_MODEL
    for section in ("agents", "families"):
        for name, owner in values.get(section, {}).items():
            if "prompt" in owner and "prompt_file" in owner:
                yield (section, name), "`prompt` and `prompt_file` exclude each other: keep one"
    for name, agent in values.get("agents", {}).items():
        if "model" in agent and not _is_model_name(agent["model"]):
            yield ("agents", name, "model"), EXPECTED_MODEL


class FieldProblem(NamedTuple):
    """A problem with a field of a table, as a clause; the field "" is the table's name."""

    field: str
    problem: str


def mcp_server_problem(name: str, server: Table) -> FieldProblem | None:
    """Return what is wrong with an MCP server, configured or lent; None if it is valid."""
    if not _SERVER_NAME.match(name):
        problem = f"expected a name of 1 to {SERVER_NAME_CHARS_MAX} letters, digits, `-` and `_`"
        return FieldProblem("", problem)
    if not _is_http(server.get("url", "http://host")):
        return FieldProblem("url", EXPECTED_URL)
    variables = {"env": server.get("env", {}), "env_vars": server.get("env_vars", [])}
    variables["api_key_env"] = [server.get("api_key_env", "X")]
    variables["oauth"] = [server.get("oauth", {}).get("client_secret_env", "X")]
    for field, names in variables.items():
        if not all(_VARIABLE_NAME.match(one) for one in names):
            problem = "expected names of environment variables, not their values"
            return FieldProblem(field, problem)
    return None


def _language_server_problems(name: str, server: Table) -> Iterator[tuple[Key, str]]:
    program = server.get("command", [""])[0]
    if "/" in program and not program.startswith("/"):
        yield ("lsp", name, "command"), "expected the name of a program, or its absolute path"
    if not all(server.get("files", {})):
        problem = 'expected file name extensions, such as { ".py" = "python" }'
        yield ("lsp", name, "files"), problem
    if name not in KNOWN and not {"command", "files"} <= server.keys():
        known = ", ".join(sorted(KNOWN))
        yield ("lsp", name), f"this server needs `command` and `files`; only {known} have defaults"


def _hook_problems(index: int, hook: Table) -> Iterator[tuple[Key, str]]:
    for field, moments in _HOOK_FIELDS.items():
        if field in hook and hook.get("on", "") not in moments:
            hooks = " or ".join(f"`{one}`" for one in moments)
            yield ("hooks", index, field), f"only a hook on {hooks} can have this key"
    # `join` accepts both forms of a command, a text and a list.
    if not "".join(hook.get("command", "x")).strip():
        yield ("hooks", index, "command"), "expected a command"


def _options_in(values: Table) -> Iterator[tuple[Key, Table]]:
    """Yield the key and content of every table of options."""
    for section in ("providers", "models", "agents"):
        for name, table in values.get(section, {}).items():
            yield (section, name, "options"), table.get("options", {})
            for variant, options in table.get("variants", {}).items():
                yield (section, name, "variants", variant), options


def _is_http(text: str) -> bool:
    return _is_address(text, ("http", "https"))


def _is_proxy(text: str) -> bool:
    return _is_address(text, ("http", "https", "socks5", "socks5h"))


def _is_address(text: str, schemes: tuple[str, ...]) -> bool:
    try:
        url = urlsplit(text)
        # Both raise `ValueError` for addresses to which no client can connect.
        name, _ = (url.hostname or "").encode("idna"), url.port
    except ValueError:
        return False
    is_plain = text.isprintable() and " " not in text
    return is_plain and url.scheme in schemes and bool(name) and url.password is None


def _is_model_name(text: str) -> bool:
    return all(text.partition("/"))
