"""A fault to plant: it breaks one guarantee by a line or two. `planted` says who finds it."""

from typing import NamedTuple

TURN = "daemon/tiller_daemon/turn/"
SESSION = "daemon/tiller_daemon/session/"


class Fault(NamedTuple):
    """Replaces `old`, which is in `file` once, by `new`. `breaks` is what then holds no more.

    A fault that no test can find, because nobody can tell the difference, says why in `equivalent`.
    """

    breaks: str
    file: str
    old: str
    new: str
    equivalent: str = ""
