"""The environment of servers: variables as configured, and never a provider's key (G13)."""

from pathlib import Path

import pytest

from mcp_servers.conftest import environment
from support.each import each
from tiller_daemon.config import McpServer
from tiller_daemon.mcp.environment import EnvironmentProblem
from tiller_daemon.session.lending import checked_servers
from tiller_protocol.lending import LentServer

CANARY = "sk-canary-1234567890"
ENVIRON = {
    "PROVIDER_KEY": CANARY,
    "COPY": f"Bearer {CANARY}",
    "GITHUB_TOKEN": "ghp-0123456789",
    "PLAIN": "yes",
    "CI": "yes",
}


def given(**settings) -> dict[str, str]:
    return environment(ENVIRON, Path("/")).variables(McpServer(command=("x",), **settings))


def test_a_server_gets_what_a_command_gets_and_what_is_configured():
    plain = given()
    assert plain["CI"] == "yes"
    assert plain["TILLER_DAEMON"] == "LOG-OF-TESTS"
    assert "TILLER_CALL" not in plain
    assert not {"GITHUB_TOKEN", "PROVIDER_KEY", "COPY", "PLAIN"} & set(plain)
    more = given(env_vars=("GITHUB_TOKEN",), env={"CI": "no", "LEVEL": "9"})
    assert (more["GITHUB_TOKEN"], more["CI"], more["LEVEL"]) == ("ghp-0123456789", "no", "9")


@each(
    ("settings", "expected"),
    [
        (
            {"env_vars": ("PROVIDER_KEY",)},
            "lists PROVIDER_KEY, which holds a provider's key",
        ),
        ({"env_vars": ("COPY",)}, "Its variable COPY holds a provider's key"),
        ({"env": {"X": f"a{CANARY}b"}}, "Its variable X holds a provider's key"),
        ({"env_vars": ("NOWHERE",)}, "`env_vars` lists NOWHERE, which is not set"),
    ],
)
@pytest.mark.promise("G13")
def test_a_providers_key_is_refused_however_it_is_named(settings, expected):
    with pytest.raises(EnvironmentProblem, match=expected) as problem:
        given(**settings)
    assert CANARY not in str(problem.value)


@pytest.mark.promise("G13")
def test_what_a_server_was_given_in_secret_is_known():
    testbed = environment(ENVIRON | {"KEY_OF_IT": "0123456789"}, Path("/"))
    started = McpServer(
        command=("x",),
        env_vars=("GITHUB_TOKEN", "PLAIN"),
        env={"API_KEY": "k-123456789", "SHORT_KEY": "abc"},
    )
    assert testbed.secrets(started) == {"ghp-0123456789", "k-123456789"}
    reached = McpServer(
        url="http://h",
        headers={"Authorization": "Basic 123456", "X-Api-Key": "x-123456789", "X-Team": "somebody"},
        api_key_env="KEY_OF_IT",
    )
    assert testbed.secrets(reached) == {"Basic 123456", "x-123456789", "0123456789"}


@each(
    "env",
    [
        {},
        {"LEVEL": "9"},
        {"CI": "no"},
        {"PLAIN": "$PLAIN"},
        {"PLAIN": "${PLAIN}"},
        {"A": "$GITHUB_TOKEN"},
        {"A": "${env:GITHUB_TOKEN}"},
        {"A": "%GITHUB_TOKEN%"},
        {"A": "$(printenv GITHUB_TOKEN)"},
        {"env_vars": "GITHUB_TOKEN"},
        {"api_key_env": "GITHUB_TOKEN"},
        {"GITHUB_TOKEN": ""},
    ],
)
def test_a_lent_server_gets_its_own_variables_and_the_allowed_ones_only(env: dict[str, str]):
    [settings] = checked_servers((LentServer("lent", ("x",), env),)).values()
    found = environment(ENVIRON, Path("/")).variables(settings)
    assert found == given() | env
    values = set(found.values())
    assert not {ENVIRON[name] for name in ("GITHUB_TOKEN", "PROVIDER_KEY", "COPY")} & values
