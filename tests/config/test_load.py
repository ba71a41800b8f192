"""The configuration: strict about its content, exact about the place of an error."""

import contextlib
import os
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tiller_daemon.config import (
    Configuration,
    ConfigurationError,
    load_configuration,
    parse_project_hooks,
)
from tiller_daemon.config.model_schema import KEY_FIELDS
from tiller_daemon.config.schema import Hook, LanguageServer, McpServer, OAuthClient, ProjectHook
from tiller_protocol.places import Places
from tiller_protocol.settings import Rule

EXAMPLE = '''\
model = "local/qwen"

[providers.local]
api = "openai_chat"
base_url = "http://127.0.0.1:11434/v1"
api_key_env = "LOCAL_KEY"

[models."local/qwen"]
context_window = 32768
max_output = 4096

[agents.plan]
prompt = """
actoin = 1
"""
permissions = [
  { permission = "write", pattern = "*", action = "deny" },
]

[[permissions]]
permission = "bash"
pattern = "git push*"
action = "ask"

[mcp.everything]
command = ["npx", "-y", "server-everything"]
'''
CANARY = "sk-canary-1234567890"


@pytest.fixture
def refused(load):
    def error(*given, **named) -> str:
        with pytest.raises(ConfigurationError) as caught:
            load(*given, **named)
        return str(caught.value)

    return error


def test_without_a_file_there_are_defaults(load):
    assert load() == Configuration()
    assert load().max_steps == 200


def test_the_example_of_the_manual_is_understood(load):
    configuration = load(EXAMPLE)
    assert configuration.model == "local/qwen"
    assert configuration.providers["local"].api == "openai_chat"
    assert configuration.models["local/qwen"].context_window == 32768
    assert configuration.agents["plan"].permissions == (Rule("write", "*", "deny"),)
    assert configuration.permissions == (Rule("bash", "git push*", "ask"),)
    assert configuration.mcp["everything"].command[0] == "npx"


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("base_url", "base_ulr", 5, "did you mean `base_url`?"),
        ('model = "l', 'modle = "l', 1, "modle: unknown key; did you mean `model`?"),
        ("[mcp", "[mpc", 25, "did you mean `mcp`?"),
        ('action = "ask"', 'actoin = "ask"', 23, "permissions[0].actoin"),
        ('action = "ask"', 'action = "maybe"', 23, "`allow`, `ask`, `deny`"),
        ('action = "ask"', "", 20, "`action` is missing"),
        ('"deny"', "7", 16, "agents.plan.permissions[0].action"),
        ("32768", '"many"', 9, 'models."local/qwen".context_window'),
        ("32768", "0", 9, ">= 1"),
        ('api = "openai_chat"', "", 3, "`api` is missing"),
        ('"openai_chat"', '"smoke"', 4, "`openai_chat`"),
        ("LOCAL_KEY", CANARY, 6, "the name of an environment variable"),
        ("http://127", "ftp://127", 5, "http://"),
        ("http://127", f"http://me:{CANARY}@127", 5, "no password"),
        ('model = "local/qwen"', 'model = "qwen"', 1, "`provider/model`"),
        ('model = "local/', 'model = "lokal/', 1, "did you mean `local`?"),
        ('[models."local/', '[models."nowhere/', 8, "no provider `nowhere`"),
        ('prompt = """', 'prompt_file = "p"\nprompt = """', 12, "exclude"),
        ("[mcp.everything]", "mcp = 3", 25, "permissions[0].mcp"),
        ("32768", "= 3", 9, "not valid TOML"),
        ("base_url", '"b` - at `$.model"', 5, "unknown key; known are"),
    ],
)
def test_an_error_names_the_file_the_line_the_key_and_a_similar_name(
    refused, places, old, new, line, problem
):
    error = refused(EXAMPLE.replace(old, new, 1))
    assert str(places.config / "config.toml") in error
    assert f"line {line}" in error
    assert problem in error
    assert CANARY not in error


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('box = ""', "destination for ssh"),
        ('box = "-oProxyCommand=x"', "destination for ssh"),
        ('box = "me box"', "destination for ssh"),
        ("box = 7", "destination for ssh"),
        ('"a:b" = "me@box"', "expected a name"),
        ('--all = "me@box"', "expected a name"),
        ('"" = "me@box"', "expected a name"),
    ],
)
def test_a_host_is_a_plain_name_and_a_destination(load, refused, entry, problem):
    good = '[hosts]\nbox = "me@box"\n2nd = "ssh://me@[::1]:22"\n'
    assert load(good).hosts == {"box": "me@box", "2nd": "ssh://me@[::1]:22"}
    error = refused(f"[hosts]\n{entry}\n")
    assert "line 2: hosts." in error
    assert problem in error


def test_an_unreadable_file_is_an_error_that_says_why(refused, places, tmp_path):
    file = places.config / "config.toml"
    assert "does not exist" in refused(file=tmp_path / "none.toml")
    file.write_bytes(b'model = "\xff"')
    assert "not UTF-8" in refused()
    file.write_bytes(b"#" * 2_000_000)
    assert "bytes" in refused()
    file.unlink()
    file.mkdir()
    assert "is not a regular file" in refused()
    file.rmdir()
    os.mkfifo(file)
    assert refused() == f"configuration file {file} is not a regular file"
    project = project_with(tmp_path, "")
    (project / ".tiller/config.toml").unlink()
    os.mkfifo(project / ".tiller/config.toml")
    file.unlink()
    assert "is not a regular file" in refused(project=project, trusted=True)


def test_a_link_that_leads_to_itself_is_an_error_and_one_that_leads_nowhere_is_no_file(
    load, refused, places
):
    file = places.config / "config.toml"
    file.symlink_to(file)
    assert "can't be read: " in refused()
    file.unlink()
    file.symlink_to("nothing")
    assert load().max_steps == Configuration().max_steps


def test_a_byte_order_mark_is_no_text_of_the_file(load, refused):
    assert load("\ufeffmax_steps = 5").max_steps == 5
    assert "config.toml, line 2: max_steps: " in refused("\ufeff\nmax_steps = 0")


def test_a_file_that_is_named_replaces_the_usual_one(load, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text("max_steps = 7")
    assert load("max_steps = 5", file=other).max_steps == 7


def test_variables_beat_the_file_and_c_beats_both(load):
    assert load(EXAMPLE, {"TILLER_MODEL": "local/b"}).model == "local/b"
    assert load(EXAMPLE, {"TILLER_MODEL": "local/b"}, ["model=local/c"]).model == "local/c"
    nested = {"TILLER_PROVIDERS__LOCAL__BASE_URL": "https://other/v1", "TILLER_MAX_STEPS": "9"}
    configuration = load(EXAMPLE, nested)
    assert configuration.providers["local"].base_url == "https://other/v1"
    assert configuration.providers["local"].api_key_env == "LOCAL_KEY"
    assert configuration.max_steps == 9


def test_c_takes_toml_bare_text_and_quoted_keys(load):
    overrides = [
        "approve=never",
        'small_model = "local/4"',
        'models."local/qwen".max_output=17',
        "permissions=[{permission='*', pattern='*', action='ask'}]",
        "agents.plan.tools=['read']",
        "agents.quick.description=true",
    ]
    configuration = load(EXAMPLE, None, overrides)
    assert configuration.approve == "never"
    assert configuration.small_model == "local/4"
    assert configuration.models["local/qwen"].max_output == 17
    assert configuration.permissions == (Rule("*", "*", "ask"),)
    assert configuration.agents["plan"].tools == ("read",)
    assert configuration.agents["quick"].description == "true"


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("modl=x", "-c modl: modl: unknown key; did you mean `model`?"),
        ("max_steps=many", "-c max_steps: max_steps: expected `int`"),
        ("model", "expected key=value"),
        ("=x", "expected key=value"),
        ("a b=x", "expected key=value"),
        ("[a]\n[b]\nc=x", "expected key=value"),
        ("max_steps=1\nmodel='x/y'", "expected `int`"),
        ("providers.x.base_url=http://x", "`api` is missing"),
        (f"approve={CANARY}", "expected one of"),
    ],
)
def test_an_error_on_the_command_line_names_it(refused, override, problem):
    error = refused(None, None, [override])
    assert problem in error
    assert CANARY not in error


def test_variables_that_are_no_configuration_are_left_alone(load):
    others = {"TILLER_HOME": "/x", "TILLER_DAEMON": "1", "TILLER_CALL": "2"}
    assert load(None, {**others, "TILLER_NAMESPACE": "helm", "PATH": "/bin"}) == Configuration()


def test_a_misspelt_variable_is_an_error(refused):
    assert "did you mean `model`?" in refused(None, {"TILLER_MODLE": "x/y"})
    nested = {"TILLER_PROVIDERS__LOCAL__BASEURL": "http://x"}
    assert "did you mean `base_url`?" in refused(EXAMPLE, nested)


def test_files_are_found_beside_the_configuration(load, refused, places):
    (places.config / "plan.md").write_text("Plan it.", encoding="utf-8")
    (places.config / "plays").mkdir()
    text = """
[agents.plan]
prompt_file = "plan.md"
[providers.play]
api = "scripted"
scripts = "plays"
record = "~/records"
"""
    configuration = load(text, {"HOME": "/home/u"})
    assert configuration.agents["plan"].prompt == "Plan it."
    assert configuration.providers["play"].scripts == str(places.config / "plays")
    assert configuration.providers["play"].record == "/home/u/records"
    (places.config / "plan.md").unlink()
    error = refused()
    assert "does not exist" in error
    assert "line 3" in error
    assert str(places.config / "plan.md") in error


def test_a_scripted_provider_needs_its_scripts(refused):
    assert "needs `scripts`" in refused("[providers.play]\napi = 'scripted'")


def project_with(tmp_path: Path, text: str) -> Path:
    project = tmp_path / "project"
    (project / ".tiller").mkdir(parents=True)
    (project / ".tiller" / "config.toml").write_text(text, encoding="utf-8")
    return project


@pytest.mark.parametrize(
    "text", ["max_steps = 3", "not toml [", "[providers.x]\napi='openai_chat'"]
)
@pytest.mark.promise("B60")
def test_a_project_that_is_not_trusted_changes_nothing_and_is_not_even_read(load, tmp_path, text):
    project = project_with(tmp_path, text)
    assert load(EXAMPLE, project=project) == load(EXAMPLE)


def test_directories_of_the_sandbox_are_absolute_after_loading(load, places):
    configuration = load("[sandbox]\nwritable = ['~/c', 'd']\nreadable = ['/e']")
    assert configuration.sandbox.mode == "workspace_write"
    assert configuration.sandbox.writable[0].endswith("/c")
    assert configuration.sandbox.writable[1] == str(places.config / "d")
    assert all(path.startswith("/") for path in configuration.sandbox.writable)
    assert configuration.sandbox.readable == ("/e",)


def test_a_trusted_project_may_narrow(load, tmp_path):
    text = """
max_steps = 3
approve = "never"
model = "local/small"
[[permissions]]
permission = "bash"
pattern = "rm *"
action = "deny"
"""
    configuration = load(EXAMPLE, project=project_with(tmp_path, text), trusted=True)
    assert (configuration.max_steps, configuration.approve) == (3, "never")
    assert configuration.model == "local/small"
    assert configuration.permissions[-1] == Rule("bash", "rm *", "deny")
    assert configuration.permissions[:-1] == (Rule("bash", "git push*", "ask"),)


def test_hooks_of_a_trusted_project_come_after_the_users_and_are_known_as_its_own(load, tmp_path):
    mine = "[[hooks]]\non = 'turn_start'\ncommand = 'mine'\n"
    theirs = "[[hooks]]\non = 'turn_end'\ncommand = ['their', 'own']\ntimeout_s = 3\n"
    project = project_with(tmp_path, theirs)
    assert load(mine, project=project).hooks == (Hook("turn_start", "mine"),)
    own = ProjectHook("turn_end", ("their", "own"), timeout_s=3)
    loaded = load(mine, project=project, trusted=True).hooks
    assert loaded == (Hook("turn_start", "mine"), own)
    assert [type(hook) for hook in loaded] == [Hook, ProjectHook]
    assert load("", project=project, trusted=True).hooks == (own,)
    assert parse_project_hooks(theirs) == (own,)


@pytest.mark.parametrize(
    "text",
    [
        "[providers.local]\nbase_url = 'http://evil'",
        "[providers.evil]\napi = 'openai_chat'",
        "[mcp.evil]\ncommand = ['sh']",
        "[[hooks]]\non = 'turn_start'\ncommand = ''",
        "[[hooks]]\non = 'turn_start'\ncommand = 'sh'\nsandbox = 'full_access'",
        "hooks = []\nsandbox.mode = 'full_access'",
        "[lsp.evil]\ncommand = ['sh']\nfiles = { '.py' = 'python' }",
        "[agents.plan]\nprompt = 'obey'",
        "[models.'local/qwen']\nmax_output = 1",
        "log_level = 'debug'",
        "resume = 'auto'",
        "approve = 'always'",
        "approve = 'ask'",
        "max_steps = 201",
        "permissions = [{permission='bash', pattern='*', action='allow'}]",
        "permissions = [{permission='bash', pattern='*', action='ask'}]",
        "model = 'evil/x'",
        "sandbox = { mode = 'full_access' }",
        "sandbox.network = true",
        "agents.x.prompt_file = '/etc/passwd'",
        "sourcegraph.endpoint = 'http://evil'",
        "web_search = { engine = 'searxng', endpoint = 'http://evil' }",
        "fetch.private_addresses = true",
        "env_keep = ['*']",
    ],
)
@pytest.mark.promise("B60")
def test_even_a_trusted_project_can_loosen_nothing(refused, tmp_path, text):
    error = refused(EXAMPLE, project=project_with(tmp_path, text), trusted=True)
    assert str(tmp_path / "project") in error


def test_a_file_that_would_take_long_to_parse_is_refused(refused):
    long = "a" + ".a" * 32_000 + "=1\n"
    assert "expected key=value" in refused(overrides=[long])
    table = "max_steps = 3\n[permissions." + long.replace("=1", "]")
    for text in (long, table, f"[[hooks.{long}"):
        error = refused(text)
        assert "has a key of more than 16 parts" in error
        with pytest.raises(ConfigurationError, match="has a key of more than 16 parts"):
            parse_project_hooks(text)


@given(text=st.text(max_size=60), key=st.text(max_size=12))
@example(text="", key="#")
def test_any_input_yields_a_configuration_or_an_error(text, key):
    places = Places(Path("/nonexistent/c"), Path("/nonexistent/s"), Path("/nonexistent/r"))
    for overrides in ([text], [f"{key}={text}"], [f"model={text}"], [f"providers.x={text}"]):
        with contextlib.suppress(ConfigurationError):
            load_configuration(places, {}, overrides)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('api_key_env = "A"\napi_key_file = "b"', "`api_key_file` exclude"),
        ('api_key_command = ["a"]\napi_key_keyring = "b"', "`api_key_keyring` ex"),
        ('account = "work"\nbase_url = "https://x"', "`account` and `base_url` exclude"),
        ('account = "work"\napi_key_env = "A"', "`account` and `api_key_env` exclude"),
        ('account = "work"', 'an account needs `api = "openai_responses"`'),
        ('account = "../work"', "as `tiller accounts` lists it"),
        ("api_key_command = []", "length >= 1"),
        ('api_key_command = "pass"', "expected `array`"),
        ('ca_file = "nowhere.pem"', "nowhere.pem does not exist"),
        ('proxy = "gopher://p"', "http://host:3128"),
        (f'proxy = "http://me:{CANARY}@p"', "without a password"),
        ("timeouts = { idle_s = 0 }", "> 0"),
        ("timeouts = { idle = 9 }", "did you mean `idle_s`?"),
    ],
)
def test_an_invalid_provider_is_an_error(load, lines, problem):
    """G13: without the value."""
    with pytest.raises(ConfigurationError) as caught:
        load(f'[providers.p]\napi = "openai_chat"\n{lines}\n')
    assert problem in str(caught.value)
    assert "providers.p" in str(caught.value)
    assert CANARY not in str(caught.value)


def test_two_places_of_a_key_from_different_sources_are_rejected(load):
    text = '[providers.p]\napi = "openai_chat"\napi_key_env = "A"\n'
    with pytest.raises(ConfigurationError, match="exclude each other"):
        load(text, overrides=["providers.p.api_key_file=/k"])


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("timeout_s = 9", "expected `command`"),
        ("command = []", "length >= 1"),
        ('command = ["a"]\nurl = "http://h"', "`command` and `url` exclude"),
        ('command = ["a"]\nheaders = { A = "b" }', "`headers` exclude"),
        ('command = ["a"]\napi_key_env = "A"', "`api_key_env` exclude"),
        ('url = "http://h"\ncwd = "/"', "`url` and `cwd` exclude"),
        ('url = "http://h"\nenv_vars = ["A"]', "`env_vars` exclude"),
        ('url = "http://h"\napi_key_env = "A"\napi_key_file = "b"', "exclude"),
        (f'url = "http://me:{CANARY}@h"', "no password"),
        ('url = "ftp://h"', "http://"),
        ('url = "http://h:99999"', "http://"),
        ('url = "http://h/a b"', "http://"),
        ('url = "http://a..b/"', "http://"),
        (
            f'command = ["a"]\nenv_vars = ["{CANARY}"]',
            "the name of an environment variable",
        ),
        (
            f'command = ["a"]\nenv = {{ "{CANARY}" = "1" }}',
            "names of environment variables",
        ),
        (
            f'url = "http://h"\napi_key_env = "{CANARY}"',
            "the name of an environment variable",
        ),
        ('command = ["a"]\ntimeout_s = 0', "> 0"),
        ('command = ["a"]\nenvironment = {}', "mcp.s.environment"),
    ],
)
def test_an_invalid_mcp_server_is_an_error(load, lines, problem):
    """G13: without the value."""
    with pytest.raises(ConfigurationError) as caught:
        load(f"[mcp.s]\n{lines}\n")
    assert problem in str(caught.value)
    assert "mcp.s" in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("name", ["a.b", "a b", "x" * 33, "é"])
def test_the_name_of_an_mcp_server_fits_into_a_tools_name(load, name):
    with pytest.raises(ConfigurationError, match="letters, digits"):
        load(f'[mcp."{name}"]\ncommand = ["a"]\n')


def test_paths_of_an_mcp_server_are_relative_to_the_configuration(load, places):
    text = (
        '[mcp.s]\ncommand = ["a"]\ncwd = "here"\n[mcp.t]\nurl = "http://h"\napi_key_file = "~/k"\n'
    )
    loaded = load(text, {"HOME": "/home/me"}).mcp
    assert loaded["s"].cwd == str(places.config / "here")
    assert loaded["t"].api_key_file == "/home/me/k"


def test_files_of_a_provider_are_relative_to_the_configuration(load, places):
    (places.config / "ca.pem").write_text("x", encoding="utf-8")
    loaded = load(
        '[providers.p]\napi = "openai_chat"\nca_file = "ca.pem"\napi_key_file = "~/keys/p"\n',
        {"HOME": "/home/me"},
    ).providers["p"]
    assert loaded.ca_file == str(places.config / "ca.pem")
    assert loaded.api_key_file == "/home/me/keys/p"


def test_the_manual_shows_what_is_understood(load, places):
    manual = Path(__file__).parents[2] / "docs" / "configuration.md"
    (example,) = re.findall(r"```toml\n(.*?)```", manual.read_text(encoding="utf-8"), re.DOTALL)
    (places.config / "plays").mkdir()
    for name in ("plan.md", "company.pem"):
        (places.config / name).write_text("Something.", encoding="utf-8")
    configuration = load(example)
    for name in Configuration.__struct_fields__:
        assert re.search(rf"^\[*{name}\b", example, re.MULTILINE), name
    assert configuration.mcp["everything"].env == {"LOG": "1"}
    for name in McpServer.__struct_fields__:
        in_keys = name in KEY_FIELDS or re.search(rf"^{name} = ", example, re.MULTILINE)
        assert in_keys or f"[mcp.forge.{name}]" in example, name
    for name in OAuthClient.__struct_fields__:
        assert name in example, name
    for name in Hook.__struct_fields__:
        assert re.search(rf"^{name} = ", example, re.MULTILINE), name
    for name in LanguageServer.__struct_fields__:
        assert re.search(rf"^{name} = ", example, re.MULTILINE), name
    assert configuration.web_search.engine == "searxng"
    assert configuration.sourcegraph.endpoint == "https://sourcegraph.example.com"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('endpoint = "sourcegraph.com"', "expected a URL"),
        ('endpoint = "https://me:secret@x"', "has no password"),
        (
            'endpoint = "https://x"\napi_key_env = "sgp_0123 456"',
            "the name of an environment variable",
        ),
        ('endpoint = "https://x"\napi_key_env = "X"\napi_key_file = "x"', "exclude each other"),
        ('api_key_env = "X"', "expected `endpoint`"),
    ],
)
def test_an_invalid_sourcegraph_is_an_error(refused, lines, problem):
    error = refused(f"[sourcegraph]\n{lines}\n")
    assert problem in error
    assert "secret" not in error
    assert "sgp" not in error


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('engine = "google"', "engine"),
        ('engine = "searxng"', "expected `endpoint`"),
        ('endpoint = "https://x"', "expected `engine`"),
        ('engine = "brave"\nendpoint = "brave.com"', "expected a URL"),
        ('engine = "brave"\napi_key_env = "BSA 0123 456"', "the name of an environment variable"),
        ('engine = "brave"\napi_key_env = "X"\napi_key_file = "x"', "exclude each other"),
    ],
)
def test_an_invalid_web_search_is_an_error(refused, lines, problem):
    error = refused(f"[web_search]\n{lines}\n")
    assert problem in error
    assert "BSA" not in error


HOSTING = """\
[providers.p]
api = "API"
scripts = "."
[models."p/m".hosted_tools]
TOOL
"""


@pytest.mark.parametrize(
    ("api", "tool", "known"),
    [
        ("openai_responses", "web_search = {}", True),
        ("openai_responses", "file_search = { vector_store_ids = ['vs_1'] }", True),
        ("openai_responses", "bing = {}", False),
        ("openai_responses", "bing = { type = 'bing' }", True),
        ("anthropic_messages", "web_fetch = { max_uses = 2 }", True),
        ("anthropic_messages", "file_search = {}", False),
        ("anthropic_messages", "x = { type = 'x_20260101' }", True),
        ("openai_chat", "web_search = {}", True),
        ("openai_chat", "code_interpreter = {}", False),
        ("openai_chat", "search = { type = 3 }", False),
        ("scripted", "anything = {}", True),
    ],
)
def test_hosted_tools_are_those_of_the_api_or_have_a_type(load, refused, api, tool, known):
    text = HOSTING.replace("API", api).replace("TOOL", tool)
    if known:
        name = tool.partition(" ")[0]
        assert list(load(text).models["p/m"].hosted_tools) == [name]
    else:
        error = refused(text)
        assert "expected web_search" in error
        assert "hosted_tools" in error


def test_the_key_file_of_a_web_search_is_relative_to_the_configuration(load, places):
    lines = '[web_search]\nengine = "brave"\napi_key_file = "keys/brave"\n'
    assert load(lines).web_search.api_key_file == str(places.config / "keys" / "brave")


def test_the_key_file_of_sourcegraph_is_relative_to_the_configuration(load, places):
    lines = '[sourcegraph]\nendpoint = "https://x"\napi_key_file = "keys/sg"\n'
    assert load(lines).sourcegraph.api_key_file == str(places.config / "keys" / "sg")


@pytest.mark.parametrize(
    ("name", "lines", "problem"),
    [
        ("mine", 'command = ["a"]', "needs `command` and `files`"),
        ("mine", 'files = { ".x" = "x" }', "only basedpyright"),
        ("ty", 'command = ["./ty"]', "absolute path"),
        ("ty", "command = []", "length >= 1"),
        ("ty", 'files = { "" = "python" }', "file name extensions"),
        ("ty", "start = true", "lsp.ty.start"),
    ],
)
def test_an_invalid_language_server_is_an_error(load, name, lines, problem):
    with pytest.raises(ConfigurationError) as caught:
        load(f"[lsp.{name}]\n{lines}\n")
    assert problem in str(caught.value)


def test_an_empty_table_chooses_a_language_server(load):
    assert load("[lsp.rust-analyzer]\n").lsp == {"rust-analyzer": LanguageServer()}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('on = "turn_start"', "`command` is missing"),
        ('command = "true"', "`on` is missing"),
        ('on = "later"\ncommand = "true"', "on"),
        ('on = "turn_end"\ncommand = " "', "expected a command"),
        ('on = "turn_end"\ncommand = []', "length >= 1"),
        ('on = "turn_end"\ncommand = 3', "command"),
        ('on = "turn_end"\ncommand = "x"\ntool = "bash"', "only a hook on"),
        ('on = "tool_after"\ncommand = "x"\non_failure = "deny"', "only a hook"),
        ('on = "request"\ncommand = "x"\ntimeout_s = 0', "> 0"),
        ('on = "request"\ncommand = "x"\nallow = true', "hooks[0].allow"),
    ],
)
def test_an_invalid_hook_is_an_error(load, lines, problem):
    with pytest.raises(ConfigurationError) as caught:
        load(f"[[hooks]]\n{lines}\n")
    assert problem in str(caught.value)
