"""What a child process is told (G13): no secrets, and the marks by which it is found."""

from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.workspace.environment import UNATTENDED, child_environment

SECRET_NAMES = [
    "OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN", "GH_PAT", "DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD_HASH", "NPM_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS", "STRIPE_SECRET", "deploy_key", "APIKEY", "SSH_PASSPHRASE",
    "API_KEYS", "KEY", "REGISTRY_AUTH", "SMTP_PASS", "SIGNING_KEY_2",
]  # fmt: skip
HARMLESS_NAMES = [
    "PATH", "HOME", "LANG", "SSH_AUTH_SOCK", "KEYBOARD", "MONKEY", "GIT_AUTHOR_NAME", "PYTHONPATH",
    "VIRTUAL_ENV", "COMPASS", "PATTERN", "XKEYSYMDB", "HTTP_PROXY", "KEYMAP",
]  # fmt: skip


def test_g13_what_is_named_like_a_secret_is_left_out():
    environ = {name: f"<{name}>" for name in SECRET_NAMES + HARMLESS_NAMES}
    told = child_environment(environ, (), "L", "c")
    assert [name for name in SECRET_NAMES if name in told] == []
    assert [name for name in HARMLESS_NAMES if name not in told] == []


def test_g13_what_the_configuration_reads_a_key_from_is_left_out_whatever_its_name():
    assert "LOCAL" not in child_environment({"LOCAL": "secret"}, {"LOCAL"}, "L", "c")


def test_g13_a_variable_that_repeats_a_secret_is_left_out():
    environ = {"OPENAI_API_KEY": "sk-123456789", "COPY": "Bearer sk-123456789", "OTHER": "x"}
    told = child_environment(environ, (), "L", "c")
    assert "COPY" not in told
    assert told["OTHER"] == "x"


def test_a_short_secret_takes_no_other_variable_with_it():
    assert "PATH" in child_environment({"SOME_TOKEN": "b", "PATH": "/bin"}, (), "L", "c")


@given(st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=9)))
def test_no_value_of_a_secret_is_anywhere_in_it(environ):
    environ = {**environ, "THE_API_KEY": "canary-canary", "PATH": "/bin"}
    told = child_environment(environ, ("PATH",), "L", "c")
    assert "canary-canary" not in "".join(told.values())
    assert "PATH" not in told


def test_the_marks_are_there_and_the_daemons_own_variables_are_not():
    environ = {
        "TILLER_HOME": "/x",
        "TILLER_CALL": "old",
        "NOTIFY_SOCKET": "/run/x",
        "TERM": "xterm",
    }
    told = child_environment(environ, (), "LOG", "call")
    assert told == {"TILLER_DAEMON": "LOG", "TILLER_CALL": "call", **UNATTENDED}


def test_a_server_of_the_daemon_has_no_mark_of_a_call():
    told = child_environment({"TILLER_CALL": "old"}, (), "LOG", "")
    assert told == {"TILLER_DAEMON": "LOG", **UNATTENDED}
