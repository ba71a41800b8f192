"""The daemon's configuration: its schema, its sources, and the projects that may add to it.

The configuration is read at the start, and again before a turn if the file has changed (`live`). A
running turn keeps the configuration that it started with.
"""

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
)
from tiller_daemon.config.projects import Project, TrustedProjects, TrustError
from tiller_daemon.config.retry import Retry
from tiller_daemon.config.schema import (
    Agent,
    CompactionPolicy,
    Configuration,
    ConfigurationError,
    Hook,
    HookMoment,
    LanguageServer,
    McpServer,
    OAuthClient,
    ProjectHook,
    SandboxPolicy,
    Sourcegraph,
    WebSearch,
)

__all__ = [
    "Agent",
    "Api",
    "CompactionPolicy",
    "Configuration",
    "ConfigurationError",
    "EditTool",
    "Hook",
    "HookMoment",
    "KeyPlaces",
    "LanguageServer",
    "LastingRule",
    "LastingRules",
    "LastingRulesError",
    "LiveConfiguration",
    "McpServer",
    "Model",
    "OAuthClient",
    "Project",
    "ProjectHook",
    "Provider",
    "Retry",
    "SandboxPolicy",
    "Sourcegraph",
    "StoredRule",
    "TrustError",
    "TrustedProjects",
    "WebSearch",
    "load_configuration",
    "parse_project_hooks",
    "rule_id",
]
