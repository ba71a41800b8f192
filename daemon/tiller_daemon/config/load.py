"""Loads the configuration in layers: the user's file, `TILLER_…` variables, `-c`, a project's file.

Later layers override earlier ones, but a project's file can only restrict them. This is the only
module that reads the files; `schema` defines their content.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import structs

from tiller_daemon.config.hosted_tools import hosted_tool_problem
from tiller_daemon.config.language_servers import KNOWN
from tiller_daemon.config.model_families import BUILT_IN as BUILT_IN_FAMILIES
from tiller_daemon.config.model_schema import Family
from tiller_daemon.config.regular_files import read_regular
from tiller_daemon.config.request_options import merge_options
from tiller_daemon.config.schema import (
    Agent,
    Configuration,
    ConfigurationError,
    ProjectConfiguration,
    ProjectHook,
)
from tiller_daemon.config.source import (
    UTF_8_SIG,
    Source,
    assign,
    convert,
    error_in,
    parse,
    suggest,
)
from tiller_daemon.config.toml import Key, Table, parse_key
from tiller_protocol.places import CONFIG_FILE, Places

PROJECT_FILE = Path(".tiller", "config.toml")

FILE_BYTES_MAX = 1024 * 1024
"""The largest configuration or prompt file, in bytes."""

VARIABLE_PREFIX = "TILLER_"
OTHER_VARIABLES = frozenset({"TILLER_HOME", "TILLER_DAEMON", "TILLER_CALL"})
"""Variables with the prefix that are no configuration: a directory, and child processes' marks."""

_PATHS = (
    "record",
    "sandbox.writable",
    "sandbox.readable",
    "sourcegraph.api_key_file",
    "web_search.api_key_file",
    "providers.*.scripts",
    "providers.*.record",
    "providers.*.ca_file",
    "providers.*.api_key_file",
    "agents.*.prompt_file",
    "families.*.prompt_file",
    "mcp.*.cwd",
    "mcp.*.api_key_file",
    "mcp.*.oauth.client_secret_file",
    "worktree.directory",
    "notify.api_key_file",
)
"""The keys of paths and lists of paths; `*` stands for any name."""

_Prompted = TypeVar("_Prompted", Agent, Family)


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
    path, home = file or places.config / CONFIG_FILE, environ.get("HOME") or "/"
    sources: list[Source] = []
    try:
        source = parse(str(path), _read_text(path, "configuration file"))
        sources.append(_with_absolute_paths(source, path.absolute().parent, home))
    except _MissingFileError:
        if file:
            raise
    assigned = (*_variables(environ), *map(_override, overrides))
    sources += [_with_absolute_paths(source, Path.cwd(), home) for source in assigned]
    values = merge_options(*(source.values for source in sources))
    configuration = convert(values, Configuration, sources)
    if trusted and project and (path := project / PROJECT_FILE).exists():
        sources.append(parse(str(path), _read_text(path, "project file")))
        configuration = _restrict(configuration, sources[-1])
    for key, problem in _problems(configuration):
        raise error_in(sources, key, problem)
    prompted = {
        section: {
            name: _with_prompt(owner, (section, name), sources)
            for name, owner in getattr(configuration, section).items()
        }
        for section in ("agents", "families")
    }
    return structs.replace(configuration, **prompted)


def parse_project_hooks(text: str) -> tuple[ProjectHook, ...]:
    """Return the hooks in a project's file; raises `ConfigurationError`."""
    source = parse(str(PROJECT_FILE), text)
    return convert(source.values, ProjectConfiguration, [source]).hooks


class _MissingFileError(ConfigurationError):
    pass


def _read_text(path: Path, what: str) -> str:
    try:
        data = read_regular(path, FILE_BYTES_MAX + 1)
        if data is None:
            raise ConfigurationError(f"{what} {path} is not a regular file")
        if len(data) > FILE_BYTES_MAX:
            raise ConfigurationError(f"{what} {path} is larger than {FILE_BYTES_MAX} bytes")
        return data.decode(UTF_8_SIG).replace("\r\n", "\n")
    except (FileNotFoundError, NotADirectoryError):
        raise _MissingFileError(f"{what} {path} does not exist") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{what} {path} is not UTF-8") from None
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise ConfigurationError(f"{what} {path} can't be read: {reason}") from None


def _variables(environ: Mapping[str, str]) -> Iterator[Source]:
    """Yield a source for each variable such as `TILLER_A__B`.

    Other programs use the prefix too, so variables that resemble no key are ignored.
    """
    for name in sorted(environ):
        if not name.startswith(VARIABLE_PREFIX) or name in OTHER_VARIABLES:
            continue
        key = tuple(name.removeprefix(VARIABLE_PREFIX).lower().split("__"))
        if "did you mean" in suggest(key[0], Configuration.__struct_fields__):
            yield assign(f"the variable {name}", key, environ[name])


def _override(text: str) -> Source:
    name, equals, value = text.partition("=")
    key = parse_key(name)
    if not equals or not key:
        raise ConfigurationError(
            f"-c {name.strip()}: expected key=value, such as -c model=local/qwen"
        )
    return assign(f"-c {name.strip()}", key, value.strip())


def _with_absolute_paths(source: Source, base: Path, home: str) -> Source:
    def absolute(value: object, keys: tuple[str, ...]) -> object:
        if isinstance(value, dict):
            table = cast("Table", value)
            names = table.keys() if keys[:1] == ("*",) else table.keys() & keys[:1]
            return {**table, **{name: absolute(table[name], keys[1:]) for name in names}}
        if isinstance(value, list):
            return [absolute(one, keys) for one in cast("list[object]", value)]
        if not isinstance(value, str):
            return value
        is_in_home = value == "~" or value.startswith("~/")
        return str(Path(home, value[2:]) if is_in_home else base / value)

    values: Any = source.values
    for keys in _PATHS:
        values = absolute(values, tuple(keys.split(".")))
    return source._replace(values=values)


def _restrict(user: Configuration, source: Source) -> Configuration:
    """Return the user's configuration with that of a trusted project, which can't loosen it."""
    for key in source.values:
        if key in set(Configuration.__struct_fields__) - set(
            ProjectConfiguration.__struct_fields__
        ):
            problem = "a project may not set this key; set it in your own configuration file"
            raise source.error((key,), problem)
    project = convert(source.values, ProjectConfiguration, [source])
    if project.max_steps > user.max_steps:
        problem = f"a project may not exceed your own limit of {user.max_steps}"
        raise source.error(("max_steps",), problem)
    changes = {name: getattr(project, name) for name in source.values}
    changes["permissions"] = (*user.permissions, *project.permissions)
    changes["hooks"] = (*user.hooks, *project.hooks)
    own = {name: getattr(project.worktree, name) for name in source.values.get("worktree", {})}
    changes["worktree"] = structs.replace(user.worktree, **own)
    return structs.replace(user, **changes)


def _problems(configuration: Configuration) -> Iterator[tuple[Key, str]]:
    """Yield the keys of values that don't go with other values or with files, and the problems."""
    named: dict[Key, str | None] = {
        ("model",): configuration.model,
        ("small_model",): configuration.small_model,
        ("compaction_model",): configuration.compaction_model,
    }
    named |= {("models", name): name for name in configuration.models}
    named |= {("agents", name, "model"): one.model for name, one in configuration.agents.items()}
    for key, model_name in named.items():
        provider_name = model_name.partition("/")[0] if model_name else None
        if provider_name not in (None, *configuration.providers):
            hint = suggest(provider_name, configuration.providers)
            yield key, f"there is no provider `{provider_name}`: {hint}"
    for name, provider in configuration.providers.items():
        for field, exists in (("scripts", Path.is_dir), ("ca_file", Path.is_file)):
            path = getattr(provider, field)
            if path is not None and not exists(Path(path)):
                yield ("providers", name, field), f"{path} does not exist"
    for name, model in configuration.models.items():
        api = configuration.providers[name.partition("/")[0]].api
        for tool, fields in model.hosted_tools.items():
            if problem := hosted_tool_problem(api, tool, fields):
                yield ("models", name, "hosted_tools", tool), problem
    for name, family in configuration.families.items():
        if not family.models and name not in BUILT_IN_FAMILIES:
            problem = "expected `models`, the patterns that match the names of its models"
            yield ("families", name), problem
    for name, server in configuration.lsp.items():
        if name not in KNOWN and not (server.command and server.files):
            known = ", ".join(sorted(KNOWN))
            problem = f"this server needs `command` and `files`; only {known} have defaults"
            yield ("lsp", name), problem


def _with_prompt(owner: _Prompted, key: Key, sources: Sequence[Source]) -> _Prompted:
    if owner.prompt_file is None:
        return owner
    if owner.prompt is not None:
        raise error_in(sources, key, "`prompt` and `prompt_file` exclude each other: keep one")
    try:
        prompt = _read_text(Path(owner.prompt_file), "prompt file")
    except ConfigurationError as error:
        raise error_in(sources, (*key, "prompt_file"), str(error)) from None
    return structs.replace(owner, prompt=prompt)
