"""Draws the first frame of a session, before the slow import of the modules that read keys.

Keys typed meanwhile are kept but not shown; see `typed_ahead`.
"""

import os
import sys
import time
from typing import NamedTuple

from tiller_client.chat.asking import Asking
from tiller_client.chat.conversation import Conversation
from tiller_client.chat.frame import Parts, compose
from tiller_client.chat.rows import PROMPT, heading_rows, hint, queue_rows
from tiller_client.chat.status import Facts, status_rows
from tiller_client.chat.terminal.abilities import follows_background, theme_for
from tiller_client.chat.terminal.look import Look
from tiller_client.chat.terminal.painter import Painter
from tiller_client.rendering.style import Kind
from tiller_client.rendering.text import cells
from tiller_protocol.snapshot import Snapshot


class Opening(NamedTuple):
    """A session on the screen, with the objects that draw it."""

    conversation: Conversation
    painter: Painter
    look: Look


def open_first(snapshot: Snapshot, background: Kind | None) -> Opening:
    """Show the first session on this process's terminal, whose `background` may be known."""
    painter = Painter(sys.stdout.fileno(), os.environ)
    look = Look(painter.size[0] - 1, theme_for(os.environ, background))
    look.follows_background = follows_background(os.environ)
    return open_session(snapshot, painter, look)


def open_session(snapshot: Snapshot, painter: Painter, look: Look) -> Opening:
    """Show a session in its present state, with an empty editor."""
    look.fit(painter)
    conversation = Conversation(snapshot, look)
    above = [*heading_rows(snapshot, look.width, look.theme), *conversation.begin()]
    frame = compose(_parts(conversation, look), painter.size[1])
    painter.paint(above, frame, painter.size)
    return Opening(conversation, painter, look)


def _parts(conversation: Conversation, look: Look) -> Parts:
    snapshot, now = conversation.snapshot, time.time()
    width, theme = look.width, look.theme
    asking = Asking()
    asking.show(next(iter(snapshot.requests), None))
    return Parts(
        live=conversation.live(now),
        queue=queue_rows(snapshot.queue, width, theme),
        editor=[PROMPT + theme.dim(hint(snapshot, asking))],
        cursor=(0, cells(PROMPT)),
        status=[theme.dim(row) for row in status_rows(snapshot, Facts(), now, width)],
    )
