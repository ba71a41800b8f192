"""The environment of a child process (G13): listed variables, no secrets, the daemon's markers."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.processes.environment import (
    PASSED_ON,
    PROXIES,
    UNATTENDED,
    child_environment,
    without_secrets,
)

SECRETS = [
    "OPENAI_API_KEY", "AWS_ACCESS_KEY_ID", "GITHUB_TOKEN", "PGPASSWORD", "MYSQL_PWD", "SSHPASS",
    "CI_JOB_JWT", "BW_SESSION", "OP_SESSION_me", "LDAP_BIND_PW", "DATABASE_URL", "SLACK_WEBHOOK",
    "REDIS_URL", "SENTRY_DSN", "CARGO_REGISTRY_TOKEN", "CONDA_TOKEN", "NPM_CONFIG__AUTH",
    "npm_config_//registry.npmjs.org/:_authToken", "MAVEN_OPTS", "XDG_RUNTIME_DIR", "PIP_PASSWORD",
    "GIT_CONFIG_VALUE_0", "HTTP_PROXY_PASSWORD", "path", "LC", "DBUS_SESSION_BUS_ADDRESS",
    "NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_USEC", "ANYTHING_ELSE",
]  # fmt: skip
NEEDED = [
    "PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL", "LC_TIME", "TZ", "TMPDIR", "XDG_CACHE_HOME",
    "CARGO_HOME", "RUSTUP_HOME", "GOPATH", "GOPROXY", "JAVA_HOME", "GRADLE_USER_HOME", "NVM_DIR",
    "NODE_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "GEM_HOME", "CC", "CFLAGS", "CI",
    "LD_LIBRARY_PATH", "NO_PROXY", "no_proxy", "https_proxy", "SSL_CERT_FILE", "ANDROID_HOME",
    "DOTNET_ROOT", "SSH_AUTH_SOCK", "GIT_AUTHOR_NAME",
]  # fmt: skip


@pytest.mark.promise("G13")
def test_what_is_not_listed_is_left_out_whatever_its_name():
    environ = {name: f"<{name}>" for name in SECRETS + NEEDED}
    told = child_environment(environ, (), "L", "c")
    assert [name for name in SECRETS if name in told] == []
    assert [name for name in NEEDED if told.get(name) != f"<{name}>"] == []


@each(
    ("name", "value", "told"),
    [
        ("HTTPS_PROXY", "http://me:secret@proxy:3128", "http://proxy:3128"),
        ("https_proxy", "http://me:secret@proxy:3128/", "http://proxy:3128/"),
        ("ALL_PROXY", "socks5h://me:s/e,c'r@et@proxy", "socks5h://proxy"),
        ("HTTP_PROXY", "me:secret@proxy:3128", "proxy:3128"),
        ("http_proxy", "proxy:3128", "proxy:3128"),
        ("NO_PROXY", "localhost,.example.com", "localhost,.example.com"),
        ("GOPROXY", "https://me:se,cret@a,https://b|direct", "https://a,https://b|direct"),
        ("GOPROXY", "https://a,https://me:secret@b,direct", "https://b,direct"),
        (
            "PIP_INDEX_URL",
            "https://secret@pypi.example.com/simple",
            "https://pypi.example.com/simple",
        ),
        ("PATH", "/home/me@home/bin:/bin", "/home/me@home/bin:/bin"),
    ],
)
@pytest.mark.promise("G13")
def test_an_address_loses_its_password(name: str, value: str, told: str):
    assert child_environment({name: value}, (), "L", "c")[name] == told


@pytest.mark.promise("G13")
def test_what_the_configuration_reads_a_key_from_is_left_out_though_it_is_to_be_kept():
    environ = {"LANG": "secret-of-a-provider", "OTHER": "is kept"}
    told = child_environment(environ, {"LANG"}, "L", "c", keep=("LANG", "O*", "*_KEY"))
    assert "LANG" not in told
    assert told["OTHER"] == "is kept"


@pytest.mark.promise("G13")
def test_a_variable_that_repeats_a_key_is_left_out():
    environ = {
        "MINE": "sk-123456789",
        "CC": "cc -Dkey=sk-123456789",
        "COPY": "sk-123456789",
        "CI": "1",
    }
    told = child_environment(environ, {"MINE"}, "L", "c", keep=("COPY",))
    assert not {"MINE", "COPY", "CC"} & told.keys()
    assert told["CI"] == "1"


def test_what_the_user_keeps_is_passed_on_as_it_is():
    url = "postgres://me:secret@db/x"
    environ = {"DATABASE_URL": url, "AWS_PROFILE": "x", "AWS_REGION": "y", "MY_AWS": "z"}
    told = child_environment(environ, (), "L", "c", keep=("DATABASE_URL", "AWS_*"))
    assert (told["DATABASE_URL"], told["AWS_PROFILE"], told["AWS_REGION"]) == (url, "x", "y")
    assert "MY_AWS" not in told
    proxy = {"HTTP_PROXY": "http://me:secret@proxy"}
    assert (
        child_environment(proxy, (), "L", "c", keep=("HTTP_PROXY",))["HTTP_PROXY"]
        == proxy["HTTP_PROXY"]
    )


def test_a_short_secret_takes_no_other_variable_with_it():
    assert without_secrets({"PATH": "/bin"}, ("b", "")) == {"PATH": "/bin"}


@given(st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=9)))
def test_nothing_of_a_key_is_anywhere_in_it(environ):
    environ = {**environ, "HOME": "canary-canary", "PATH": "/bin"}
    told = child_environment(environ, ("HOME",), "L", "c", keep=("*",))
    assert "canary-canary" not in "".join(told.values())
    assert told["PATH"] == "/bin"


def test_the_marks_are_there_and_the_daemons_own_variables_are_not():
    environ = {
        "TILLER_MODEL": "x",
        "TILLER_CALL": "old",
        "NOTIFY_SOCKET": "/run/x",
        "TERM": "xterm",
    }
    told = child_environment(environ, (), "LOG", "call", keep=("TILLER_*", "TERM"))
    assert told == {"TILLER_DAEMON": "LOG", "TILLER_CALL": "call", **UNATTENDED}


def test_a_server_of_the_daemon_has_no_mark_of_a_call():
    told = child_environment({"TILLER_CALL": "old"}, (), "LOG", "")
    assert told == {"TILLER_DAEMON": "LOG", **UNATTENDED}


def test_each_variable_stands_once_and_in_the_manual():
    names = [name for listed in PASSED_ON.values() for name in listed.split()]
    assert len({*names, *PROXIES}) == len(names) + len(PROXIES)
    manual = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    assert [name for name in names if f"`{name}`" not in manual] == []
