"""Loads the configuration in layers: the user's file, `TILLER_…` variables, `-c`, a project's file.

Later layers override earlier ones, but a project's layer can only restrict them. This is the only
module that reads the files; `schema` defines their content.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import structs

from tiller_daemon.config.hosted_tools import hosted_tool_problem
from tiller_daemon.config.model_families import BUILT_IN as BUILT_IN_FAMILIES
from tiller_daemon.config.model_schema import Family, Provider
from tiller_daemon.config.regular_files import read_regular
from tiller_daemon.config.schema import (
    DEFAULT_MAX_STEPS,
    Agent,
    Configuration,
    ConfigurationError,
    McpServer,
    OAuthClient,
    ProjectHook,
    Sourcegraph,
    WebSearch,
)
from tiller_daemon.config.semantics import KEY_FIELDS, SECRET_FIELDS, check_semantics
from tiller_daemon.config.source import (
    UTF_8_SIG,
    Key,
    Source,
    Table,
    assign,
    check_complete,
    has,
    merge,
    parse,
    suggest,
)
from tiller_daemon.config.toml import TomlError, parse_toml
from tiller_protocol.places import CONFIG_FILE, Places

PROJECT_FILE = Path(".tiller", "config.toml")

PROJECT_KEYS = ("model", "small_model", "approve", "max_steps", "permissions", "hooks")
"""The keys that a project's file may set. They name no servers, files or commands, except for the
commands of hooks, which run in the sandbox."""

FILE_BYTES_MAX = 1024 * 1024
"""The largest configuration or prompt file, in bytes."""

VARIABLE_PREFIX = "TILLER_"
OTHER_VARIABLES = frozenset({"TILLER_HOME", "TILLER_DAEMON", "TILLER_CALL"})
"""Variables with the prefix that are no configuration: a directory, and child processes' marks."""

_PATH_FIELDS = {
    "providers": ("scripts", "record", "ca_file", "api_key_file"),
    "agents": ("prompt_file",),
    "families": ("prompt_file",),
    "mcp": ("cwd", "api_key_file"),
}
"""The fields with paths in the tables that a section has by name."""

_NEEDED_FIELDS = ("scripts", "ca_file", "prompt_file")
"""The fields whose paths must exist: a directory with scripts, and files."""

_Prompted = TypeVar("_Prompted", Agent, Family)

_STDIO_FIELDS = ("command", "cwd", "env", "env_vars")
_HTTP_FIELDS = ("url", "headers", *KEY_FIELDS, "api_key_header", "oauth")
"""The fields of an MCP server that the daemon starts, and of a server that is reached by HTTP."""


def load_configuration(
    places: Places,
    environ: Mapping[str, str],
    overrides: Sequence[str] = (),
    project: Path | None = None,
    *,
    trusted: bool = False,
    file: Path | None = None,
) -> Configuration:
    """Read and check all sources; raises `ConfigurationError`.

    `file` is the argument of `--config` and must exist; without it, `config.toml` in
    `places.config` is read if it exists. `overrides` are the `key=value` texts of `-c`. `project`
    is a workspace; its file is read only if `trusted`, and may only restrict what the user allows.
    """
    layers = [
        *_read_file(file or places.config / CONFIG_FILE, environ, needed=file is not None),
        *_variable_layers(environ),
        *(_override_layer(text, environ) for text in overrides),
    ]
    if project is not None and trusted:
        layers += _project_layer(_merge_layers(layers), project / PROJECT_FILE)
    return _build(layers)


def parse_project_hooks(text: str) -> tuple[ProjectHook, ...]:
    """Return the hooks in a project's file; raises `ConfigurationError` without a line number."""
    values = parse(Source(str(PROJECT_FILE), text), find_lines=False)
    return _project_hooks(values)


class _Layer(NamedTuple):
    """The checked values of one source, and the hooks that it adds to other layers' hooks."""

    source: Source
    values: Table
    hooks: tuple[ProjectHook, ...] = ()


def _merge_layers(layers: Sequence[_Layer]) -> Table:
    values: Table = {}
    for layer in layers:
        values = merge(values, layer.values)
    return values


def _read_file(path: Path, environ: Mapping[str, str], *, needed: bool) -> Iterator[_Layer]:
    try:
        source = Source(str(path), _read_text(path, "configuration file"))
    except ConfigurationError as error:
        if error.code == "missing_file" and not needed:
            return
        raise
    values = parse(source)
    check_complete(values, Configuration, (), source)
    check_semantics(values, source)
    yield _Layer(source, _with_absolute_paths(values, path.absolute().parent, environ, source))


def _read_text(path: Path, what: str) -> str:
    try:
        data = read_regular(path, FILE_BYTES_MAX + 1)
        if data is None:
            raise ConfigurationError("unreadable_file", f"{what} {path} is not a regular file")
        if len(data) > FILE_BYTES_MAX:
            raise ConfigurationError(
                "unreadable_file", f"{what} {path} is larger than {FILE_BYTES_MAX} bytes"
            )
        return data.decode(UTF_8_SIG).replace("\r\n", "\n")
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError("missing_file", f"{what} {path} does not exist") from None
    except UnicodeDecodeError:
        raise ConfigurationError("unreadable_file", f"{what} {path} is not UTF-8") from None
    except OSError as error:
        reason = error.strerror or "unreadable"
        problem = f"{what} {path} can't be read: {reason}"
        raise ConfigurationError("unreadable_file", problem) from None


def _variable_layers(environ: Mapping[str, str]) -> Iterator[_Layer]:
    """Yield a layer for each variable such as `TILLER_A__B`.

    Other programs use the prefix too, so variables that resemble no key are ignored.
    """
    for name in sorted(environ):
        if not name.startswith(VARIABLE_PREFIX) or name in OTHER_VARIABLES:
            continue
        key = tuple(name.removeprefix(VARIABLE_PREFIX).lower().split("__"))
        if "did you mean" not in suggest(key[0], Configuration.__struct_fields__):
            continue
        source = Source(f"the variable {name}")
        yield _assigned_layer(key, environ[name], source, environ)


def _override_layer(text: str, environ: Mapping[str, str]) -> _Layer:
    name, equals, value = text.partition("=")
    source = Source(f"-c {name.strip()}")
    key = _key_of(name)
    if not equals or not key:
        raise ConfigurationError(
            "syntax", f"{source.name}: expected key=value, such as -c model=local/qwen"
        )
    return _assigned_layer(key, value.strip(), source, environ)


def _key_of(text: str) -> tuple[str, ...]:
    """Return the parts of a dotted key; parts with dots or slashes are quoted, as in TOML."""
    try:
        table: Any = parse_toml(f"{text} = 0")
    except TomlError:
        return ()
    key: list[str] = []
    while isinstance(table, dict) and table:
        ((part, table),) = cast("dict[str, Any]", table).items()
        key.append(part)
    return tuple(key)


def _assigned_layer(
    key: tuple[str, ...], text: str, source: Source, environ: Mapping[str, str]
) -> _Layer:
    values = assign(key, text, source)
    check_semantics(values, source)
    return _Layer(source, _with_absolute_paths(values, Path.cwd(), environ, source))


def _with_absolute_paths(
    values: Table, base: Path, environ: Mapping[str, str], source: Source
) -> Table:
    """Return `values` with paths made absolute from `base`; check that required files exist."""

    def absolute(table: Table, *fields: str) -> Table:
        found = [field for field in fields if field in table]
        return {**table, **{field: _absolute(table[field], base, environ) for field in found}}

    values = absolute(values, "record")
    if sandbox := values.get("sandbox"):
        found = [name for name in ("writable", "readable") if name in sandbox]
        lists = {name: [_absolute(one, base, environ) for one in sandbox[name]] for name in found}
        values["sandbox"] = {**sandbox, **lists}
    for section in ("sourcegraph", "web_search"):
        if values.get(section, {}).get("api_key_file"):
            values[section] = absolute(values[section], "api_key_file")
    for section, fields in _PATH_FIELDS.items():
        if section in values:
            tables = {name: absolute(table, *fields) for name, table in values[section].items()}
            for name, table in tables.items():
                _check_needed(table, (section, name), source)
            values[section] = tables
    for server in values.get("mcp", {}).values():
        if server.get("oauth", {}).get("client_secret_file"):
            server["oauth"] = absolute(server["oauth"], "client_secret_file")
    return values


def _check_needed(table: Table, key: Key, source: Source) -> None:
    for field in _NEEDED_FIELDS:
        if field in table:
            path = Path(table[field])
            if not (path.is_dir() if field == "scripts" else path.is_file()):
                raise source.error("missing_file", (*key, field), f"{path} does not exist")


def _absolute(text: str, base: Path, environ: Mapping[str, str]) -> str:
    if text == "~" or text.startswith("~/"):
        return str(Path(environ.get("HOME") or "/", text[2:]))
    return str(base / text)


def _project_layer(values: Table, path: Path) -> Iterator[_Layer]:
    """Yield the layer of a trusted project's file, which can't loosen the user's `values`."""
    if not path.exists():
        return
    source = Source(str(path), _read_text(path, "project file"))
    added = parse(source)
    check_semantics(added, source)
    for key in added:
        if key not in PROJECT_KEYS:
            problem = "a project may not set this key; set it in your own configuration file"
            raise source.error("not_allowed", (key,), problem)
    if added.get("approve", "never") != "never":
        raise source.error("not_allowed", ("approve",), "a project may only set it to `never`")
    limit = values.get("max_steps", DEFAULT_MAX_STEPS)
    if added.get("max_steps", limit) > limit:
        problem = f"a project may not exceed your own limit of {limit}"
        raise source.error("not_allowed", ("max_steps",), problem)
    for index, rule in enumerate(added.get("permissions", [])):
        if rule["action"] != "deny":
            # Later rules win, so `ask` would override the user's denials.
            problem = "a project may only use `deny`: other actions could override your own denials"
            raise source.error("not_allowed", ("permissions", index, "action"), problem)
    rules = [*values.get("permissions", []), *added.pop("permissions", [])]
    hooks = _project_hooks(added)
    # Merging would replace the user's list of hooks; `_build` appends the project's instead.
    added.pop("hooks", None)
    yield _Layer(source, {**added, "permissions": rules}, hooks)


def _project_hooks(values: Table) -> tuple[ProjectHook, ...]:
    return msgspec.convert(values.get("hooks", []), tuple[ProjectHook, ...])


def _build(layers: Sequence[_Layer]) -> Configuration:
    """Return the complete configuration: merge layers, check references, read prompt files."""
    values = _merge_layers(layers)
    # Checked after merging, because required fields, and tables that names refer to, may come from
    # different layers. Each layer is checked for missing fields in those parts that it sets.
    for layer in layers:
        relevant = {name: values[name] for name in layer.values}
        check_complete(relevant, Configuration, (), layer.source)
    configuration = msgspec.convert(values, Configuration)
    if found := next(_problems(configuration), None):
        key, problem = found
        source = next(layer.source for layer in reversed(layers) if has(layer.values, key))
        raise source.error("invalid_value", key, problem)
    agents = {name: _with_prompt(agent) for name, agent in configuration.agents.items()}
    families = {name: _with_prompt(family) for name, family in configuration.families.items()}
    hooks = (*configuration.hooks, *(hook for layer in layers for hook in layer.hooks))
    return structs.replace(configuration, agents=agents, families=families, hooks=hooks)


def _problems(configuration: Configuration) -> Iterator[tuple[Key, str]]:
    """Yield the keys of invalid parts of the merged configuration, and the problems as clauses."""
    for name, provider in configuration.providers.items():
        if provider.api == "scripted" and provider.scripts is None:
            problem = "a scripted provider needs `scripts`, the directory of its scripts"
            yield ("providers", name), problem
        yield from _key_problems(provider, ("providers", name))
    for name, server in configuration.mcp.items():
        yield from _mcp_server_problems(server, ("mcp", name))
    for name, family in configuration.families.items():
        if not family.models and name not in BUILT_IN_FAMILIES:
            problem = "expected `models`, the patterns that match the names of its models"
            yield ("families", name), problem
    yield from _search_server_problems(configuration.sourcegraph, configuration.web_search)
    for key, model_name in _models_named(configuration).items():
        provider_name = model_name.partition("/")[0]
        if provider_name not in configuration.providers:
            hint = suggest(provider_name, configuration.providers)
            yield key, f"there is no provider `{provider_name}`: {hint}"
    for name, model in configuration.models.items():
        api = configuration.providers[name.partition("/")[0]].api
        for tool, fields in model.hosted_tools.items():
            if problem := hosted_tool_problem(api, tool, fields):
                yield ("models", name, "hosted_tools", tool), problem


def _key_problems(
    owner: Provider | McpServer | OAuthClient | Sourcegraph | WebSearch,
    key: Key,
    fields: Sequence[str] = KEY_FIELDS,
) -> Iterator[tuple[Key, str]]:
    named = [field for field in fields if getattr(owner, field) is not None]
    if len(named) > 1:
        yield key, " and ".join(f"`{field}`" for field in named) + " exclude each other: keep one"


def _mcp_server_problems(server: McpServer, key: Key) -> Iterator[tuple[Key, str]]:
    """Check that a server has either `command` or `url`, and only the fields that go with it."""
    if not server.command and not server.url:
        yield key, "expected `command`, which starts the server, or `url`, its address"
    for expected, others in ((_STDIO_FIELDS[0], _HTTP_FIELDS), (_HTTP_FIELDS[0], _STDIO_FIELDS)):
        extra = [field for field in others if getattr(server, field)]
        if getattr(server, expected) and extra:
            yield key, f"`{expected}` and `{extra[0]}` exclude each other: keep one"
    yield from _key_problems(server, key, (*KEY_FIELDS, "oauth"))
    if server.oauth:
        yield from _key_problems(server.oauth, (*key, "oauth"), SECRET_FIELDS)


def _search_server_problems(
    sourcegraph: Sourcegraph, web_search: WebSearch
) -> Iterator[tuple[Key, str]]:
    if sourcegraph != Sourcegraph() and not sourcegraph.endpoint:
        yield ("sourcegraph",), "expected `endpoint`, the address of the server"
    yield from _key_problems(sourcegraph, ("sourcegraph",))
    if web_search != WebSearch() and not web_search.engine:
        yield ("web_search",), "expected `engine` with the value `searxng` or `brave`"
    if web_search.engine == "searxng" and not web_search.endpoint:
        yield ("web_search",), "expected `endpoint`, the address of the SearXNG server"
    yield from _key_problems(web_search, ("web_search",))


def _models_named(configuration: Configuration) -> dict[Key, str]:
    """Return every configured model name by its key."""
    named: dict[Key, str | None] = {
        ("model",): configuration.model,
        ("small_model",): configuration.small_model,
        ("compaction_model",): configuration.compaction_model,
    }
    named |= {("models", name): name for name in configuration.models}
    named |= {("agents", name, "model"): one.model for name, one in configuration.agents.items()}
    return {key: name for key, name in named.items() if name is not None}


def _with_prompt(owner: _Prompted) -> _Prompted:
    if owner.prompt_file is None:
        return owner
    return structs.replace(owner, prompt=_read_text(Path(owner.prompt_file), "prompt file"))
