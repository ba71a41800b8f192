"""The language servers that work without configuration. Data only; `lsp` runs them.

The first installed server for a language is used. Servers that find the most problems with the
least memory come first.
"""

from collections.abc import Mapping
from typing import Final

from tiller_daemon.config.schema import LanguageServer

_PYTHON: Final = {".py": "python", ".pyi": "python"}
_PYTHON_ROOT: Final = ("pyproject.toml", "pyrightconfig.json", "ty.toml", "ruff.toml", "setup.py")
_SCRIPT: Final = {
    ".ts": "typescript",
    ".mts": "typescript",
    ".cts": "typescript",
    ".tsx": "typescriptreact",
    ".js": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".jsx": "javascriptreact",
}
_SCRIPT_ROOT: Final = ("tsconfig.json", "jsconfig.json", "package.json")
_C: Final = {
    ".c": "c",
    ".h": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cxx": "cpp",
    ".hh": "cpp",
    ".hpp": "cpp",
}

# A project's own settings override these. Without these, the strictest modes would report style.
_PYRIGHT: Final = {"diagnosticMode": "openFilesOnly", "typeCheckingMode": "standard"}

KNOWN: Final[Mapping[str, LanguageServer]] = {
    "ty": LanguageServer(command=("ty", "server"), files=_PYTHON, root_markers=_PYTHON_ROOT),
    "ruff": LanguageServer(command=("ruff", "server"), files=_PYTHON, root_markers=_PYTHON_ROOT),
    "basedpyright": LanguageServer(
        command=("basedpyright-langserver", "--stdio"),
        files=_PYTHON,
        root_markers=_PYTHON_ROOT,
        settings={"basedpyright": {"analysis": _PYRIGHT}},
    ),
    "pyright": LanguageServer(
        command=("pyright-langserver", "--stdio"),
        files=_PYTHON,
        root_markers=_PYTHON_ROOT,
        settings={"python": {"analysis": _PYRIGHT}},
    ),
    "pyrefly": LanguageServer(command=("pyrefly", "lsp"), files=_PYTHON, root_markers=_PYTHON_ROOT),
    "tsgo": LanguageServer(
        command=("tsgo", "--lsp", "--stdio"), files=_SCRIPT, root_markers=_SCRIPT_ROOT
    ),
    "typescript": LanguageServer(
        command=("tsc", "--lsp", "--stdio"), files=_SCRIPT, root_markers=_SCRIPT_ROOT
    ),
    "typescript-language-server": LanguageServer(
        command=("typescript-language-server", "--stdio"),
        files=_SCRIPT,
        root_markers=_SCRIPT_ROOT,
    ),
    "clangd": LanguageServer(
        command=("clangd",), files=_C, root_markers=("compile_commands.json", ".clangd")
    ),
    "gopls": LanguageServer(
        command=("gopls",), files={".go": "go"}, root_markers=("go.work", "go.mod")
    ),
    "rust-analyzer": LanguageServer(
        command=("rust-analyzer",), files={".rs": "rust"}, root_markers=("Cargo.toml",)
    ),
}
"""The built-in servers by name; for each language, the best comes first."""

RUNS_THE_REPOSITORY: Final = frozenset(
    {
        "basedpyright",
        "gopls",
        "pyrefly",
        "pyright",
        "rust-analyzer",
        "typescript-language-server",
    }
)
"""Servers that run programs from the repository that they analyse: the interpreter of its virtual
environment (verified for the three Python servers), build scripts, or toolchains and compilers that
it names. These servers are started only if the user's configuration names them."""
