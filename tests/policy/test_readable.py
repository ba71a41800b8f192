"""Which files may be read without a question."""

from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.policy.readable import Readable
from tiller_daemon.policy.rules import decide
from tiller_daemon.tools.base import Requirement
from tiller_protocol.settings import Rule

PROTECTED = (
    ".env", "a/.env", "prod.env", "prod.ENV", ".env.local", ".env_prod", "a/.env-local",
    "/home/me/.env", ".dev.vars", ".secrets", "config/secrets.yml", "secrets.json",
    ".streamlit/secrets.toml", "site/wp-config.php", ".vault_pass", "ansible/.vault-pass.txt",
    "vault_password.txt", "id_rsa", "keys/id_ed25519", "deploy_id_rsa.bak", ".ssh/deploy",
    "server.pem", "SERVER.PEM", "x.key", "config/master.key", "cert.p12", "cert.pfx", "CERT.PFX",
    "putty.ppk", "release.jks", "upload.keystore", "http.keytab", "AuthKey_1A2B.p8", "vpn/me.ovpn",
    "passwords.kdbx", ".gnupg/secring", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".htpasswd",
    ".git-credentials", ".npmrc", "packages/a/.npmrc", ".pypirc", "auth.json",
    ".composer/auth.json", ".cargo/credentials.toml", ".gem/credentials", ".docker/config.json",
    "home/.aws/credentials", ".aws/sso/cache/1.json", ".azure/msal_token_cache.json",
    "service-account.json", "gcp_service_account_prod.json", "serviceAccountKey.json",
    "app-firebase-adminsdk-x1.json", "credentials.json", "google/client_secret_1.json",
    "gcloud/application_default_credentials.json", "aws/rootkey_accessKeys.csv", ".s3cfg",
    ".kube/config", "kubeconfig", "cluster/kubeconfig.yaml", "prod.kubeconfig",
    "terraform.tfstate", "env/terraform.tfstate.backup", ".terraformrc", "credentials.tfrc.json",
    ".config/gh/hosts.yml", ".config/rclone/rclone.conf", ".kaggle/kaggle.json",
)  # fmt: skip
SHOWN = (
    ".env.example", ".env.sample", ".env.template", ".env.local.example", ".env_example",
    ".env-dist", "deploy/example.env", "env.py", "src/environment.ts", "src/env.d.ts",
    ".environment", "keys/id_ed25519.pub", "release.pub", "key.py", "tests/key.py", "keys.txt",
    "src/secrets.py", "secret.ts", "monkey", "tokens.json", "locales/en/auth.json",
    "credentials.py", "src/credentials/index.ts", "credentials.json.example", "pem.go",
    "service_account.py", "kubeconfig.go", "main.tf", "terraform.tfvars.example",
    "keystore.java", "android/app/debug.keystore", "chart/templates/secrets.yaml", "npmrc.md",
    "netrc.py", "docs/pgpass.md", ".yarnrc.yml", "gradle.properties", ".aws/task-definition.json",
    ".ssh.md", "src/main.py", "AGENTS.md", "node_modules/x/cert.pem",
)  # fmt: skip

PATHS = st.lists(
    st.sampled_from(("a", ".env", "x.env", "id_rsa", "keys", "a.pem", "secrets", "é")), min_size=1
).map("/".join)
PATTERNS = st.lists(
    st.sampled_from(("*", "?", "a", "/", ".env", "secrets", "keys", "\\*")), min_size=1, max_size=5
).map("".join)
RULES = st.lists(
    st.builds(
        Rule,
        permission=st.sampled_from(("read", "*", "write", "r*")),
        pattern=PATTERNS,
        action=st.sampled_from(("allow", "ask", "deny")),
    ),
    max_size=4,
)


@each("path", PROTECTED)
def test_what_is_secret_by_custom_is_not(path):
    assert not Readable(())(path)


@each("path", SHOWN)
def test_what_is_not_is(path):
    assert Readable(())(path)


@given(RULES, PATHS)
def test_it_says_what_the_tool_read_would_be_told(rules, path):
    need = Requirement("read", (path,), kind="path")
    assert Readable(rules)(path) == (decide((need,), rules, "ask").action == "allow")


@given(RULES, PATHS)
def test_a_mark_is_in_a_name_of_every_file_that_is_protected(rules, path):
    readable = Readable(rules)
    if not readable(path):
        assert any(mark in name for mark in readable.path_fragments for name in path.split("/"))
