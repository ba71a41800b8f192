"""The theme for a terminal, by the environment variables that tell what it can do; pure."""

from collections.abc import Mapping
from typing import get_args

from tiller_client.rendering.style import TRUECOLOR, Kind, Pictures, Theme

PICTURES: tuple[Pictures, ...] = get_args(Pictures)

KONSOLE_WITH_SIXELS = 220400
"""Konsole's first version that draws sixels, 22.04, as in `KONSOLE_VERSION`."""


def theme_for(environ: Mapping[str, str], background: Kind | None = None) -> Theme:
    """The theme for a terminal, by environment variables.

    `TILLER_THEME` is `dark`, `light`, `none` or `auto`. If it is `auto` or not set, the background
    that the terminal has reported decides, else `COLORFGBG`, which some terminals set.
    `TILLER_IMAGES` is one of `PICTURES`. With `NO_COLOR` or `TERM=dumb`, there are no escapes.
    """
    term = environ.get("TERM", "")
    if environ.get("NO_COLOR") or term in ("", "dumb") or environ.get("TILLER_THEME") == "none":
        return Theme()
    kind = _kind_of_variables(environ)
    if background and follows_background(environ):
        kind = background
    # A terminal multiplexer drops images and links unless they are specially wrapped.
    between = "TMUX" in environ or term.startswith(("screen", "tmux"))
    program = environ.get("TERM_PROGRAM", "")
    return Theme(
        kind,
        _colours(environ, term),
        links=not between and _takes_links(environ, term, program),
        pictures=_wished_pictures(environ)
        or ("none" if between else _pictures(environ, term, program)),
    )


def follows_background(environ: Mapping[str, str]) -> bool:
    """Whether the terminal's background decides about the theme, rather than the user."""
    wishes = environ.get("NO_COLOR"), environ.get("TILLER_THEME") in ("dark", "light", "none")
    return not any(wishes)


def _kind_of_variables(environ: Mapping[str, str]) -> Kind:
    """The background by `COLORFGBG`, such as `0;15`: the last number is one of 16 colours."""
    wished = environ.get("TILLER_THEME", "")
    if wished in ("dark", "light"):
        return "light" if wished == "light" else "dark"
    return "light" if environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15") else "dark"


def _colours(environ: Mapping[str, str], term: str) -> int:
    if environ.get("COLORTERM") in ("truecolor", "24bit"):
        return TRUECOLOR
    return 256 if "256color" in term or term.startswith(("xterm-kitty", "alacritty")) else 16


def _takes_links(environ: Mapping[str, str], term: str, program: str) -> bool:
    known = ("iTerm.app", "WezTerm", "ghostty", "vscode", "Hyper", "Tabby", "rio")
    vte = environ.get("VTE_VERSION", "")
    return (
        program in known
        or term.startswith(("xterm-kitty", "xterm-ghostty", "alacritty", "foot"))
        or "WT_SESSION" in environ
        or "KONSOLE_VERSION" in environ
        or (vte.isdecimal() and int(vte) >= 5000)  # since VTE 0.50
    )


def _pictures(environ: Mapping[str, str], term: str, program: str) -> Pictures:
    if "KITTY_WINDOW_ID" in environ or term in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    if program == "ghostty":
        return "kitty"
    if program in ("iTerm.app", "WezTerm"):
        return "iterm2"
    konsole = environ.get("KONSOLE_VERSION", "")
    has_sixels = (
        term.startswith(("foot", "mlterm", "contour", "yaft"))
        or program == "mintty"
        or (konsole.isdecimal() and int(konsole) >= KONSOLE_WITH_SIXELS)
    )
    return "sixel" if has_sixels else "none"


def _wished_pictures(environ: Mapping[str, str]) -> Pictures | None:
    wished = environ.get("TILLER_IMAGES", "")
    return next((one for one in PICTURES if one == wished), None)
