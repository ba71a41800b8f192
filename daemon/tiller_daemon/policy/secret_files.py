"""Patterns for files that usually hold keys, tokens or passwords, for the built-in rules. Pure.

These are lists because a program can't recognise a secret by its content. A file that programs need
for building or testing does not belong here if it holds a secret only sometimes (`.yarnrc.yml`,
`gradle.properties`): commands that run without a question can't read these files.
"""

from typing import Final

SECRET_FILES: Final = (
    # variables and passwords of applications
    "*.env", "*.ENV", "*.env.*", "*.env_*", "*.env-*", "*.envrc", "*.dev.vars", "*.secrets",
    "*secrets.toml", "secrets.json", "*/secrets.json", "secrets.yml", "*/secrets.yml",
    "secrets.yaml", "*/secrets.yaml", "*wp-config.php", "*.vault?pass*", "*vault_pass*.txt",
    # private keys and their stores
    "*id_rsa*", "*id_ecdsa*", "*id_ed25519*", "*id_dsa*", "*.ssh/*", "*.gnupg/*", "*secring.gpg",
    "*.pem", "*.PEM", "*.key", "*.KEY", "*.p12", "*.P12", "*.pfx", "*.PFX", "*.p8", "*.ppk",
    "*.pkcs12", "*.jks", "*.JKS", "*.jceks", "*.keystore", "*.keytab", "*.kdbx", "*.agekey",
    "*sops/age/keys.txt", "*.ovpn", "*wallet.dat",
    # passwords of servers and databases
    "*.netrc", "*_netrc", "*.pgpass", "*pgpass.conf", "*.my.cnf", "*.mylogin.cnf", "*.htpasswd",
    "*.git-credentials",
    # tokens of package managers; Composer's file is at the top
    "*.npmrc", "*.pypirc", "*.cargo/credentials.toml", "*composer/auth.json", "auth.json",
    "*.dockercfg", "*.dockerconfigjson", "*.docker/config.json",
    # clouds, clusters and services
    "*credentials", "*credentials.json", "*credentials.csv", "*accessKeys.csv",
    "*.aws/credentials*", "*.aws/sso/*", "*.aws/cli/cache/*", "*.azure/msal_token_cache*",
    "*.azure/service_principal*", "*.azure/accessTokens.json", "*.oci/*", "*.s3cfg", "*.boto",
    "*gcloud/*credentials*", "*gcloud/access_tokens.db", "*gha-creds-*.json", "*.databrickscfg",
    "*service?account*.json", "*serviceAccount*.json", "*firebase-adminsdk*.json",
    "*client?secret*.json", "*.kube/config*", "*kubeconfig", "*kubeconfig.yaml",
    "*kubeconfig.yml", "*.tfstate", "*.tfstate.*", "*.terraformrc", "*.tfrc.json", "*.vault-token",
    "*gh/hosts.yml", "*glab-cli/config.yml", "*doctl/config.yaml", "*hcloud/cli.toml",
    "*.fly/config.yml", "*rclone.conf", "*ngrok.yml", "*.sentryclirc", "*kaggle.json",
    "*huggingface/token", "*.codex/auth.json", "*opencode/auth.json",
)  # fmt: skip
"""Files with secrets."""

PUBLIC_FILES: Final = (
    "*.pub", "*.env*example", "*.env*sample", "*.env*template", "*.env*dist",
    "*example.env", "*sample.env", "*template.env",
    # Every Android project has this one, whose password is public.
    "*debug.keystore",
    # Templates of Kubernetes manifests.
    "*templates/secrets.yaml", "*templates/secrets.yml",
)  # fmt: skip
"""Files that only look like files with secrets."""
