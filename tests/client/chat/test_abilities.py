"""What a terminal can do is known by its environment variables."""

from support.each import each
from tiller_client.chat.terminal.abilities import theme_for
from tiller_client.rendering.style import TRUECOLOR, Theme


@each(
    ("environ", "expected"),
    [
        ({"TERM": "dumb"}, Theme()),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, Theme()),
        ({"TERM": "linux"}, Theme("dark", 16)),
        ({"TERM": "xterm-256color", "COLORFGBG": "0;15"}, Theme("light", 256)),
        (
            {"TERM": "xterm-kitty", "COLORTERM": "truecolor"},
            Theme("dark", TRUECOLOR, links=True, pictures="kitty"),
        ),
        ({"TERM": "tmux-256color", "TMUX": "x", "KITTY_WINDOW_ID": "1"}, Theme("dark", 256)),
    ],
)
def test_the_theme_fits_the_terminal(environ, expected):
    assert theme_for(environ) == expected


@each(
    ("environ", "pictures"),
    [
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "mlterm-256color"}, "sixel"),
        ({"TERM": "xterm-256color"}, "none"),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "220400"}, "sixel"),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "211201"}, "none"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "mintty"}, "sixel"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm2"),
        ({"TERM": "tmux-256color", "TMUX": "x", "TERM_PROGRAM": "mintty"}, "none"),
        ({"TERM": "tmux-256color", "TMUX": "x", "TILLER_IMAGES": "sixel"}, "sixel"),
        ({"TERM": "xterm-kitty", "TILLER_IMAGES": "none"}, "none"),
        ({"TERM": "xterm-kitty", "TILLER_IMAGES": "jpeg"}, "kitty"),
        ({"TERM": "dumb", "TILLER_IMAGES": "sixel"}, "none"),
    ],
)
def test_the_protocol_for_images_is_known_by_variables(environ, pictures):
    assert theme_for(environ).pictures == pictures
