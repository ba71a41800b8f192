"""Paths with a known meaning for profiles: system files, secrets, and files that get executed.

These are lists because a program can't recognise a secret by its content. The sandboxes
(`bubblewrap`, `seatbelt`) hide and protect the paths.
"""

import fnmatch
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Final

HIDDEN_IN_HOME: Final = (
    ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".netrc", "_netrc", ".pgpass", ".my.cnf",
    ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli",
    ".config/gcloud", ".config/op", ".config/doctl", ".config/rclone", ".config/sops",
    ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".mozilla",
    ".thunderbird", ".docker/config.json", ".config/containers/auth.json", ".npmrc", ".pypirc",
    ".yarnrc.yml", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials",
    ".terraform.d/credentials.tfrc.json", ".vault-token", ".password-store",
    ".local/share/keyrings", ".local/share/kwalletd", ".claude/.credentials.json",
    ".claude.json", ".codex/auth.json", ".local/share/opencode/auth.json", ".gemini", ".s3cfg",
    ".boto", ".databrickscfg", ".local/share/uv/credentials", ".hex/hex.config",
    ".stack/upload", ".julia/secrets", ".julia/servers", ".sbt/.credentials",
    ".luarocks/upload_config.lua",
    ".nimble/github_api_token", ".platformio/appstate.json", ".pub-cache/credentials.json",
    ".cabal/config", ".foundry/keystores", ".oci", ".fly", ".config/fly", "Library/Keychains",
    "Library/Cookies", "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox",
)  # fmt: skip
"""Keys, tokens, passwords and browser sessions."""

SYSTEM: Final = (
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/opt", "/sys", "/nix",
    "/gnu", "/snap", "/run/current-system", "/run/opengl-driver", "/run/wrappers",
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/var/lib/dpkg",
    "/var/lib/rpm", "/var/lib/pacman", "/var/lib/texmf", "/var/cache/fontconfig",
)  # fmt: skip
"""The system: programs, libraries and their configuration."""

BOUND_SOCKETS: Final = Path("/proc/net/unix")
"""The list of all sockets with a path. Even on a read-only file system they accept connections."""

EXECUTED: Final = (
    # tiller and other agents
    ".tiller", ".claude", ".codex", ".cursor", ".gemini", ".opencode", ".qwen", ".kiro", ".amazonq",
    ".roo", ".windsurf", ".junie", ".factory", ".continue", ".cline", ".trae", ".copilot", ".crush",
    ".goose", ".amp", ".augment", ".aider*", ".mcp.json", "mcp.json", "opencode.json*",
    ".crush.json", "crush.json", ".goosehints",
    # editors
    ".vscode", ".idea", ".zed", ".fleet", ".run", ".devcontainer", ".devcontainer.json", ".helix",
    "*.code-workspace", "*.sublime-project", ".nvim.lua", ".nvimrc", ".exrc", ".vimrc", "_vimrc",
    "_exrc", ".dir-locals*.el", ".lvimrc", ".projectile", ".theia",
    # shells, debuggers, git, desktops
    ".envrc", ".env.fish", ".autoenv*", ".gdbinit", ".lldbinit", ".radare2rc", ".git", ".husky",
    ".githooks", "mise.toml", "mise.*.toml", ".mise*", "devbox.json", ".direnv",
    ".pre-commit-config.yaml", "lefthook*", ".lefthook*", "mise", "gptme.toml", ".bsp", ".lsp",
    "prek.toml", "rust-toolchain", "rust-toolchain.toml", "*.desktop", ".autorun", "autorun.inf",
)  # fmt: skip
"""Names of files and directories that git, shells, editors, agents or desktops execute when they
start or open a directory. They are patterns in lower case."""

PRODUCTS: Final = (
    # caches, logs and temporary files in general
    "*cache*", "*.log", "*.tmp", "*.swp", "*.swo", "*.pid", "*.lock", "*.stamp", "*-stamp",
    ".stamp*", ".built*", ".done*", ".installed*", ".configured*", ".timestamp*", ".tmp*", ".nfs*",
    ".ds_store", ".#*", ".~*", ".fuse_hidden*", ".build", ".output", ".dist", ".out", ".temp*",
    # Python
    ".venv*", ".virtualenv", ".tox", ".nox", ".eggs", ".coverage*", ".hypothesis", ".pytype",
    ".ipynb_checkpoints", ".testmondata*", ".benchmarks", ".pdm-build", ".pdm-python", ".pyre",
    ".ropeproject", ".pixi",
    # JavaScript
    ".next", ".nuxt", ".svelte-kit", ".turbo", ".vite*", ".angular", ".astro", ".docusaurus",
    ".nyc_output", ".expo", ".nx", ".nitro", ".vinxi", ".react-router", ".wrangler",
    ".contentlayer", ".serverless", ".aws-sam", ".open-next", ".sst", ".pnpm-store", ".swc",
    ".storybook-static", ".tshy*", ".wireit", ".lage", ".rush", ".netlify",
    # other languages
    ".gradle", ".kotlin", ".bloop", ".metals", ".stack-work", ".dart_tool", ".lake",
    ".elixir_ls", ".clj-kondo", ".cpcache", ".shadow-cljs", ".calva", ".godot", ".import",
    ".cxx", ".externalnativebuild", ".libs", ".deps", ".objs", ".clang-tidy-cache", ".zig-*",
    ".phpunit*", ".terraform", ".deno", ".bundle-install", ".sass-*", ".ninja_*",
    ".jekyll-metadata", ".mono", ".fake", ".paket", ".ionide", ".scannerwork", ".vagrant",
)  # fmt: skip
"""Entries with a dot that builds and tests write, and no program executes by itself. They are
patterns in lower case."""

EXECUTED_AT_HOME: Final = (
    ".ssh", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
    ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".xprofile", ".xsessionrc", ".gitconfig",
    ".config/git", ".config/fish", ".config/systemd", ".config/autostart", ".config/tiller",
    ".local/bin", ".local/share/applications", "Library/LaunchAgents",
)  # fmt: skip
"""Files that shells, desktops, git and service managers execute for a user. A workspace may be a
home, or contain the files for one (dotfiles)."""

_EXECUTED: Final = re.compile("|".join(fnmatch.translate(name) for name in EXECUTED))
_PRODUCTS: Final = re.compile("|".join(fnmatch.translate(name) for name in PRODUCTS))
_AT_HOME: Final = tuple(f"/{name.casefold()}/" for name in EXECUTED_AT_HOME)


def is_executed(name: str) -> bool:
    """Whether a program executes a file or directory with this name by itself.

    `HEAD` at the top of a directory can make it a repository.
    """
    folded = name.casefold()
    return folded == "head" or _EXECUTED.fullmatch(folded) is not None


def is_product(name: str) -> bool:
    """Whether a name with a dot belongs to a product of builds."""
    folded = name.casefold()
    return _PRODUCTS.fullmatch(folded) is not None and _EXECUTED.fullmatch(folded) is None


def is_protected(path: str) -> bool:
    """Whether a program executes the file at a path by itself, as far as the path shows."""
    folded = path.casefold()
    if any(map(_EXECUTED.fullmatch, folded.split("/"))):
        return True
    return any(name in f"/{folded}/" for name in _AT_HOME)


def bound_sockets() -> Iterator[Path]:
    """Yield the paths of listening sockets, as the kernel lists them."""
    try:
        lines = BOUND_SOCKETS.read_bytes().split(b"\n")
    except OSError:
        return
    for line in lines:
        _, separator, path = line.partition(b" /")
        if separator:
            yield Path("/" + os.fsdecode(path))


def tool_paths(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the paths of the user's own programs and of what they need, existing ones only.

    They come from PATH, from this Python and from the usual places in a home. A link is followed by
    where it leads. Of a directory with a `bin` on PATH, only the parts of an installation count: it
    may be a project with other files. In a home and its `.local`, these parts belong to all
    programs, so only the usual places count.
    """
    named = [Path(sys.prefix), Path(sys.base_prefix)]
    shared = {Path(os.path.realpath(one)) for one in (home, home / ".local")}
    for text in environ.get("PATH", "").split(os.pathsep):
        if text.startswith("/"):
            path = Path(os.path.realpath(text))
            named.append(path)
            is_other = os.path.lexists(path.parent / ".git") or path.parent in shared
            # Version managers, which have shims, are clones of their repositories.
            if path.name == "shims" or (path.name in ("bin", "sbin") and not is_other):
                named += (path.parent / name for name in OF_INSTALLATIONS)
    named += [home / name for name in TOOLS_IN_HOME]
    closed = {home, *home.parents}
    for path in dict.fromkeys(named):
        if path not in closed and os.path.lexists(path):
            yield path
            real = Path(os.path.realpath(path))
            if real != path and real not in closed:
                yield real


def compiler_caches(home: Path, spill: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the caches in a home that compilers need, and a private place for each."""
    for name in COMPILER_CACHES:
        yield home / name, spill / "caches" / Path(name).name


def package_caches(home: Path, spill: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the caches in a home without which programs can't download, and private places."""
    for name in PACKAGE_CACHES:
        yield home / name, spill / "caches" / Path(name).name


PACKAGE_CACHES: Final = (".npm/_cacache",)
"""Caches that hold only copies of what can be downloaded. If npm can't write its own, it fails."""

COMPILER_CACHES: Final = (
    ".cache/go-build", ".ccache", ".cache/ccache", ".cache/zig", ".cache/sccache", ".cache/deno",
)  # fmt: skip
"""Caches that compilers write. A command sees the session's own, which the user's programs never
use."""

OF_INSTALLATIONS: Final = (
    "lib", "lib64", "libexec", "share", "include", "etc", "pyvenv.cfg", "conda-meta", "ssl", "src",
    "pkg", "conf", "jmods", "jre", "release", "go.env", "VERSION", "versions", "packages", "cache",
    "plugins", "toolchains", "installs", "Cellar", "opt", "Frameworks",
)  # fmt: skip
"""The entries beside the `bin` of an installation."""

TOOLS_IN_HOME: Final = (
    ".cargo", ".rustup", ".pyenv", ".nvm", ".fnm", ".local/share/fnm", ".rbenv", ".rvm", ".asdf",
    ".volta", ".bun", ".deno/bin", ".sdkman", ".jabba", ".local/share/mise", ".local/share/rtx",
    ".local/share/uv", ".local/share/pipx", ".local/pipx", ".local/share/pnpm", ".pnpm-store",
    ".local/share/virtualenvs", ".virtualenvs", ".local/bin", ".local/lib", "go/bin", "go/pkg",
    "bin", "miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda/envs",
    ".conda/pkgs", ".juliaup", ".julia", ".opam", ".ghcup", ".cabal", ".stack", ".elan", ".mix",
    ".hex", ".pub-cache", "flutter", ".dotnet", ".nuget/packages", ".m2/repository", ".m2/wrapper",
    ".gradle/caches", ".gradle/wrapper", ".gradle/jdks", ".ivy2/cache", ".sbt", ".konan",
    ".gem/ruby", ".bundle/cache", ".local/share/gem", ".composer/vendor", ".config/composer/vendor",
    ".cpan", "perl5", ".luarocks", ".nimble", ".swiftpm", ".vcpkg", ".conan2/p", ".emsdk",
    ".platformio", "Android/Sdk", ".krew", ".tfenv", ".tenv", ".terraform.d/plugin-cache",
    ".terraform.d/plugins", ".foundry", ".nix-profile", ".local/state/nix", ".guix-profile",
    ".npm/_cacache", ".npm-global", ".yarn/berry", ".cache/pip", ".cache/uv", ".cache/pypoetry",
    ".cache/pre-commit", ".cache/prek", ".cache/yarn", ".cache/pnpm", ".cache/node", ".cache/bazel",
    ".cache/bazelisk", ".cache/node-gyp", ".cache/ms-playwright", ".cache/puppeteer",
    ".cache/Cypress", ".cache/electron", ".cache/golangci-lint", ".cache/coursier",
    ".cache/hie-bios", ".cache/huggingface/hub", ".cache/torch", ".cache/vcpkg",
    ".cache/clangd", ".cache/fontconfig", ".fonts", ".local/share/fonts", ".texlive", ".gitconfig",
    ".config/git/config", ".config/git/ignore", ".config/git/attributes", ".gitignore",
    ".config/ruff", ".config/ty", ".config/clangd", ".gitignore_global", ".ripgreprc",
    ".config/ripgrep", ".editorconfig", "Library/Caches/pip",
    "Library/Caches/Homebrew", "Library/pnpm", "Library/Python",
)  # fmt: skip
"""Programs in a home with their libraries and caches, and the configuration of programs that only
read. `HIDDEN_IN_HOME` lists the secrets among them."""


def closed_system_files() -> Iterator[Path]:
    """Yield the paths in `/etc` that not everyone may read, but a command run as root could."""
    if os.geteuid() != 0:
        return  # Without root's rights the kernel protects these files.
    for folder, names, files in os.walk("/etc"):
        closed = [name for name in (*names, *files) if _is_closed(f"{folder}/{name}")]
        names[:] = [name for name in names if name not in closed]
        yield from (Path(folder, name) for name in closed)


def _is_closed(path: str) -> bool:
    """Whether this is a directory or regular file that not everyone may read."""
    try:
        mode = os.lstat(path).st_mode  # one look at each of thousands of files
    except FileNotFoundError:
        return False
    return (stat.S_ISDIR(mode) or stat.S_ISREG(mode)) and not mode & stat.S_IROTH


def existing(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths that exist, with links resolved and without duplicates.

    Links that lead nowhere are left out, and so are paths that are too long to be opened.
    """
    return (
        Path(real)
        for real in dict.fromkeys(map(os.path.realpath, paths))
        if os.path.exists(real)  # noqa: PTH110 - the path may be too long
    )


def root_of(path: Path, roots: Iterable[Path]) -> Path | None:
    """Return the root that contains `path`, or None; a root does not contain itself."""
    text = str(path)
    for root in roots:
        if root != path and text.startswith(str(root).rstrip("/") + "/"):
            return root
    return None


def between(root: Path, path: Path) -> Iterator[Path]:
    """Return the directories between `root` and `path`, excluding both."""
    return takewhile(lambda parent: parent != root, path.parents)
