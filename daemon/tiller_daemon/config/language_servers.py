"""The language servers that are known without configuration. Data; how they are run is in `lsp`.

The first one of a language that is found is used: those that find most, and take least, come first.
"""

from types import MappingProxyType
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

# What a project configures counts more; without that the strictest modes would report style.
_PYRIGHT: Final = {"diagnosticMode": "openFilesOnly", "typeCheckingMode": "standard"}

KNOWN: Final = MappingProxyType(
    {
        "ty": LanguageServer(command=("ty", "server"), files=_PYTHON, root_markers=_PYTHON_ROOT),
        "ruff": LanguageServer(
            command=("ruff", "server"), files=_PYTHON, root_markers=_PYTHON_ROOT
        ),
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
        "pyrefly": LanguageServer(
            command=("pyrefly", "lsp"), files=_PYTHON, root_markers=_PYTHON_ROOT
        ),
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
)
"""By their names, best first within a language."""

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
"""Those that run programs of the repository that they look at: the interpreter of its environment
(the three for Python, as seen), build scripts, toolchains that it names, compilers in it. They are
started only when the user's configuration names them."""
