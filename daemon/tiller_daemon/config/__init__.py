"""The daemon's configuration: its schema, its sources, and the projects that may add to it.

The configuration is read at the start, and again before a turn if the file has changed (`live`). A
running turn keeps the configuration that it started with.

`schema.py`, `model_schema.py` and `notify_schema.py` define the configuration, and `constraints.py`
what its values must fulfil. `load.py` reads it, `source.py` finds the place of an error, and
`live.py` reads the files again when one has changed. `projects.py` decides which projects the user
trusts. `model_families.py` has the base prompt and editing tools for each family of models.

# What a turn's start reads

To start, a turn reads a few small files: instructions, skills, agents, commands, and the
repository's branch. So a changed file takes effect with the next turn. Configuration, trusted
projects and lasting rules are needed more often. They are read again only if the stamps of their
files (`stamps.py`) have changed.

A turn also converts and encodes the history, and estimates how many tokens it has.
`session/turns/idle_histories.py` caches the results. The next turn reuses them for all items before
the first item that has changed, so nothing has to invalidate the cache.

# A changed configuration

On SIGHUP and before most ops, the daemon checks whether `config.toml` or a file named in it has
changed (`config/live.py`). If so, `live_parts.py` replaces the providers and servers whose
configuration has changed, and keeps the rest. A running turn keeps the clients and tools of its
frozen context.

If a changed file is invalid, the old configuration stays in use. If an op is then rejected because
it names an unknown model or agent, the error also describes the mistake in the file
(`session/rejections.py`).

# Trust in projects

A project may bring its own configuration, agents, commands and hooks in the folder `.tiller` of the
workspace. These files have an effect only if the user has trusted their current content.
`config/projects.py` checks their digest before each turn. Other modules use `.tiller` only through
three functions of `session/context/project_trust.py`: `configuration_for`, `trusted_workspace` (for
agents and commands) and `project_hook_sandbox` (for hooks). Even a trusted project can only tighten
the user's limits (`config/load.py`). Its hooks run in the same sandbox as the model's commands.
"""

# The imports are the names that other packages use.
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from tiller_daemon.config.hook_schema import Hook, HookMoment, ProjectHook
from tiller_daemon.config.lasting_rules import (
    LastingRule,
    LastingRules,
    LastingRulesError,
    StoredRule,
    rule_id,
)
from tiller_daemon.config.live import LiveConfiguration
from tiller_daemon.config.load import load_configuration, parse_project_hooks
from tiller_daemon.config.model_schema import (
    Api,
    EditTool,
    KeyPlaces,
    Model,
    Provider,
    Retry,
)
from tiller_daemon.config.notify_schema import Notify, NotifyMoment
from tiller_daemon.config.projects import Project, TrustedProjects, TrustError
from tiller_daemon.config.schema import (
    Agent,
    CompactionPolicy,
    Configuration,
    ConfigurationError,
    LanguageServer,
    McpServer,
    OAuthClient,
    SandboxPolicy,
    Sourcegraph,
    WebSearch,
    Worktree,
)
