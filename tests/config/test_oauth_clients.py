"""The table `oauth` of an MCP server: a client that the user has registered."""

import pytest

from tiller_daemon.config import ConfigurationError, OAuthClient
from tiller_daemon.sandbox_setup import key_files, key_variables

SERVER = '[mcp.x]\nurl = "https://x.example"\n'
CLIENT = f'{SERVER}[mcp.x.oauth]\nclient_id = "mine"\n'
CANARY = "secret-canary-1234567890"


def test_a_client_is_read_and_its_file_is_found_beside_the_configuration(load, places):
    loaded = load(
        f'{CLIENT}client_secret_file = "secret"\nclient_secret_method = "post"\n'
        'scopes = ["repo:read", "mail"]\nredirect_port = 8765\n'
    )
    assert loaded.mcp["x"].oauth == OAuthClient(
        "mine",
        client_secret_file=str(places.config / "secret"),
        client_secret_method="post",
        scopes=("repo:read", "mail"),
        redirect_port=8765,
    )
    assert load(CLIENT).mcp["x"].oauth == OAuthClient("mine")


def test_the_place_of_a_secret_is_kept_from_commands_as_that_of_a_key_is(load, places):
    with_file = load(f'{CLIENT}client_secret_file = "secret"\n')
    assert key_files(with_file) == (places.config / "secret",)
    with_variable = load(f'{CLIENT}client_secret_env = "FORGE_SECRET"\n')
    assert key_variables(with_variable) == {"FORGE_SECRET"}


def test_a_later_source_may_add_to_a_client(load):
    added = ["mcp.x.oauth.redirect_port=99", "mcp.x.oauth.client_secret_env=S"]
    expected = OAuthClient("mine", client_secret_env="S", redirect_port=99)
    assert load(CLIENT, overrides=added).mcp["x"].oauth == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f'{CLIENT}client_secret = "{CANARY}"', "`client_secret_"),
        (
            f'{CLIENT}client_secret_env = "{CANARY}"',
            "the name of an environment variable",
        ),
        (f"{SERVER}[mcp.x.oauth]\nredirect_port = 9", "`client_id` is missing"),
        (f'{SERVER}[mcp.x.oauth]\nclient_id = ""', "length >= 1"),
        (f"{CLIENT}redirect_port = 70000", "<= 65535"),
        (f'{CLIENT}scopes = ["a b"]', "matching regex"),
        (f'{CLIENT}client_secret_method = "{CANARY}"', "`basic`, `post`"),
        (
            f'{CLIENT}client_secret_env = "A"\nclient_secret_keyring = "b"',
            "`client_secret_env` and `client_secret_keyring` exclude each other",
        ),
        (
            f'{SERVER}api_key_env = "A"\n[mcp.x.oauth]\nclient_id = "mine"',
            "`api_key_env` and `oauth` exclude each other",
        ),
        (
            '[mcp.x]\ncommand = ["true"]\n[mcp.x.oauth]\nclient_id = "mine"',
            "`command` and `oauth` exclude each other",
        ),
    ],
)
def test_an_invalid_client_is_an_error_without_the_value(load, text, problem):
    with pytest.raises(ConfigurationError) as caught:
        load(text)
    assert "mcp.x" in str(caught.value)
    assert problem in str(caught.value)
    assert CANARY not in str(caught.value)
