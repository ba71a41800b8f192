"""The environment of child processes: only the daemon's variables that programs need.

A variable is passed on because it is listed here or because the user configured it, never because
its name looks harmless: a name does not show whether the value is a secret. The functions are pure.
`fork_server` starts processes, and `process_tree` ends them.
"""

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from itertools import chain
from typing import Final

DAEMON_MARKER: Final = "TILLER_DAEMON"
"""The variable with the daemon's log id in every child process, so that leftovers can be found."""

CALL_MARKER: Final = "TILLER_CALL"
"""The variable with the id of the tool call for which a process was started."""

PROXIES: Final = frozenset(
    ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "http_proxy", "https_proxy")
) | {"all_proxy", "ftp_proxy"}
"""Variables with proxy addresses, which may contain a password even without a scheme."""

PASSED_ON: Final[Mapping[str, str]] = {
    "the user and the machine": """
        HOME HOSTNAME LOGNAME PATH SHELL TEMP TMP TMPDIR USER WSL_DISTRO_NAME
        XDG_CACHE_HOME XDG_CONFIG_DIRS XDG_CONFIG_HOME XDG_DATA_DIRS XDG_DATA_HOME XDG_STATE_HOME
        GNUPGHOME SSH_AUTH_SOCK""",
    "language and time": """
        LANG LANGUAGE LOCALE_ARCHIVE LOCPATH SOURCE_DATE_EPOCH TZ TZDIR""",
    "terminal and output": """
        CLICOLOR CLICOLOR_FORCE COLORTERM COLUMNS FORCE_COLOR LINES LS_COLORS NO_COLOR TERMINFO
        TERMINFO_DIRS""",
    "network": """
        NO_PROXY no_proxy CURL_CA_BUNDLE GIT_SSL_CAINFO NIX_SSL_CERT_FILE NODE_EXTRA_CA_CERTS
        PIP_CERT REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE""",
    "git": """
        GIT_AUTHOR_EMAIL GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_NAME GIT_CONFIG_GLOBAL
        GIT_CONFIG_NOSYSTEM GIT_CONFIG_SYSTEM GIT_EXEC_PATH GIT_LFS_SKIP_SMUDGE""",
    "compilers and building": """
        AR AS CC CFLAGS CPATH CPLUS_INCLUDE_PATH CPP CPPFLAGS CXX CXXFLAGS C_INCLUDE_PATH FC FFLAGS
        LD LDFLAGS LIBRARY_PATH NM RANLIB STRIP ACLOCAL_PATH ARFLAGS
        CCACHE_DIR CMAKE_BUILD_PARALLEL_LEVEL CMAKE_BUILD_TYPE CMAKE_CXX_COMPILER_LAUNCHER
        CMAKE_C_COMPILER_LAUNCHER CMAKE_GENERATOR CMAKE_PREFIX_PATH CMAKE_TOOLCHAIN_FILE CUDA_HOME
        CUDA_PATH CUDA_VISIBLE_DEVICES DEVELOPER_DIR LLVM_CONFIG MACOSX_DEPLOYMENT_TARGET MAKEFLAGS
        NINJA_STATUS OMP_NUM_THREADS PKG_CONFIG PKG_CONFIG_LIBDIR PKG_CONFIG_PATH
        PKG_CONFIG_SYSROOT_DIR SCCACHE_DIR SDKROOT SYSROOT""",
    "libraries and packages of the system": """
        DYLD_FALLBACK_LIBRARY_PATH DYLD_LIBRARY_PATH HOMEBREW_CELLAR HOMEBREW_PREFIX
        HOMEBREW_REPOSITORY INFOPATH IN_NIX_SHELL LD_LIBRARY_PATH LOADEDMODULES MANPATH MODULEPATH
        MODULESHOME NIX_CFLAGS_COMPILE NIX_LDFLAGS NIX_PATH NIX_PROFILES NIX_STORE""",
    "Python": """
        CONDA_DEFAULT_ENV CONDA_EXE CONDA_PREFIX CONDA_PYTHON_EXE CONDA_SHLVL HATCH_ENV MAMBA_EXE
        MAMBA_ROOT_PREFIX PIPX_BIN_DIR PIPX_HOME PIP_CACHE_DIR PIP_DISABLE_PIP_VERSION_CHECK
        PIP_INDEX_URL PIP_NO_INDEX PIP_REQUIRE_VIRTUALENV POETRY_CACHE_DIR POETRY_HOME
        POETRY_VIRTUALENVS_IN_PROJECT PYENV_ROOT PYENV_VERSION PYTHONBREAKPOINT
        PYTHONDONTWRITEBYTECODE PYTHONHASHSEED PYTHONHOME PYTHONIOENCODING PYTHONPATH
        PYTHONPYCACHEPREFIX PYTHONUNBUFFERED PYTHONUTF8 PYTHONWARNINGS UV_CACHE_DIR UV_INDEX_URL
        UV_PROJECT_ENVIRONMENT UV_PYTHON UV_PYTHON_INSTALL_DIR VIRTUAL_ENV""",
    "JavaScript": """
        BUN_INSTALL COREPACK_HOME DENO_DIR DENO_INSTALL FNM_DIR FNM_MULTISHELL_PATH NODE_ENV
        NODE_OPTIONS NODE_PATH NPM_CONFIG_CACHE NPM_CONFIG_PREFIX NPM_CONFIG_REGISTRY
        NPM_CONFIG_USERCONFIG NVM_BIN NVM_DIR NVM_INC PLAYWRIGHT_BROWSERS_PATH PNPM_HOME
        PUPPETEER_EXECUTABLE_PATH VOLTA_HOME YARN_CACHE_FOLDER npm_config_cache npm_config_prefix
        npm_config_registry npm_config_userconfig""",
    "Go and Rust": """
        CGO_CFLAGS CGO_ENABLED CGO_LDFLAGS GO111MODULE GOARCH GOBIN GOCACHE GOENV GOEXPERIMENT
        GOFLAGS GOMAXPROCS GOMODCACHE GONOPROXY GONOSUMDB GOOS GOPATH GOPRIVATE GOPROXY GOROOT
        GOSUMDB GOTMPDIR GOTOOLCHAIN GOWORK CARGO_BUILD_JOBS CARGO_BUILD_TARGET CARGO_HOME
        CARGO_INCREMENTAL CARGO_NET_OFFLINE CARGO_TARGET_DIR CARGO_TERM_COLOR RUSTC RUSTC_WRAPPER
        RUSTDOCFLAGS RUSTFLAGS RUSTUP_HOME RUSTUP_TOOLCHAIN RUST_BACKTRACE RUST_LOG
        RUST_MIN_STACK""",
    "the JVM, .NET and Android": """
        ANDROID_HOME ANDROID_NDK_HOME ANDROID_NDK_ROOT ANDROID_SDK_ROOT DOTNET_CLI_HOME
        DOTNET_CLI_TELEMETRY_OPTOUT DOTNET_NOLOGO DOTNET_ROOT FLUTTER_ROOT GRADLE_HOME
        GRADLE_USER_HOME JAVA_HOME JDK_HOME KOTLIN_HOME M2_HOME MAVEN_HOME NUGET_PACKAGES PUB_CACHE
        SBT_HOME SCALA_HOME SDKMAN_DIR""",
    "Ruby, PHP, Perl and others": """
        ASDF_DATA_DIR ASDF_DIR BUNDLE_GEMFILE BUNDLE_PATH COMPOSER_CACHE_DIR COMPOSER_HOME
        ELIXIR_HOME EMSDK ERL_AFLAGS GEM_HOME GEM_PATH GHCUP_INSTALL_BASE_PREFIX HEX_HOME
        JULIA_DEPOT_PATH LUA_CPATH LUA_PATH MISE_DATA_DIR MIX_ENV MIX_HOME OPAMROOT
        OPAM_SWITCH_PREFIX PERL5LIB PERL_MB_OPT PERL_MM_OPT RACK_ENV RAILS_ENV RBENV_ROOT
        RBENV_VERSION RUBYLIB RUBYOPT R_HOME R_LIBS R_LIBS_USER STACK_ROOT ZIG_GLOBAL_CACHE_DIR""",
    "how programs are run": """
        CI COMPOSE_FILE COMPOSE_PROJECT_NAME DOCKER_BUILDKIT DOCKER_CONTEXT DOCKER_HOST""",
}
"""The variables to pass on, by purpose. None of them is meant for keys, passwords, or connection
strings with passwords. Addresses lose their user and password."""

PASSED_ON_PREFIX: Final = "LC_"
"""The prefix of the variables for a locale's categories."""

SECRET_NAME: Final = re.compile(
    r"(?:^|_)(?:API|ACCESS|PRIVATE|SECRET|SIGNING|ENCRYPTION)?_?KEYS?(?:_|$)"
    r"|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL"
    r"|(?:^|_)(?:PASS|PAT|PWD_HASH|AUTH)$",
    re.IGNORECASE,
)
"""Matches the names of headers and of MCP servers' variables whose values are redacted."""

SECRET_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})

SECRET_VALUE_CHARS_MIN: Final = 8
"""Shorter values (`1`, `true`) are not searched for in other variables."""

UNATTENDED: Final = {
    "GH_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "PAGER": "cat",
    "TERM": "dumb",
}
"""Variables that keep well-known programs from waiting for a user who is not there."""


def is_secret_header(name: str) -> bool:
    """Whether a header with this name holds a credential."""
    named = SECRET_NAME.search(name.replace("-", "_"))
    return named is not None or name.casefold() in SECRET_HEADERS


def child_environment(
    environ: Mapping[str, str],
    secret_names: Collection[str],
    log_id: str,
    call_id: str,
    keep: Collection[str] = (),
) -> dict[str, str]:
    """Return the complete environment for a child process of the daemon.

    It contains the variables of `environ` that `PASSED_ON` lists, without passwords in addresses,
    and those that match a pattern in `keep`. It never contains the variables in `secret_names`
    (from which the configuration reads keys), other variables with such a value, or the daemon's
    own. `call_id` is empty for a process that belongs to no call, such as a server.
    """
    passed: dict[str, str] = {}
    for name, value in environ.items():
        if name.startswith("TILLER_") or name in secret_names:
            continue
        if any(fnmatchcase(name, pattern) for pattern in keep):
            passed[name] = value
        # Variables that the user listed are passed on unchanged, all others without passwords.
        elif name in _PASSED_ON or name.startswith(PASSED_ON_PREFIX):
            passed[name] = _without_password(name, value)
    marks = {DAEMON_MARKER: log_id} | ({CALL_MARKER: call_id} if call_id else {})
    secrets = [environ[name] for name in secret_names if name in environ]
    return without_secrets(passed, secrets) | UNATTENDED | marks


def without_secrets(variables: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    """Return the variables whose values contain no secret; short secrets are not searched for."""
    wanted = [secret for secret in secrets if len(secret) >= SECRET_VALUE_CHARS_MIN]
    return {
        name: value
        for name, value in variables.items()
        if not any(secret in value for secret in wanted)
    }


_PASSED_ON: Final = PROXIES.union(chain.from_iterable(map(str.split, PASSED_ON.values())))

_USER: Final = re.compile(r"(?<=://)\S*@")
"""Matches the user and password in an address. A password may contain anything, even `@`, so if a
value has several addresses, some may get lost."""


def _without_password(name: str, value: str) -> str:
    """Remove users and passwords from the addresses in a value."""
    if name in PROXIES and "://" not in value:
        return value.rpartition("@")[2]
    return _USER.sub("", value)
