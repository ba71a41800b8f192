"""`acp`: speaks the Agent Client Protocol on stdin and stdout, until the editor closes them."""

import contextlib
import os
import select
import sys
from argparse import Namespace
from typing import NoReturn

from tiller_client.acp.agent import Agent
from tiller_client.acp.rpc import Peer
from tiller_client.command_line.choices import read_settings
from tiller_client.streams import show_all

WAIT_S_MAX = 60.0
"""Longest wait, well below the interval at which loans are renewed."""


def run(arguments: Namespace) -> int:
    """Serve one editor until it disconnects; running turns continue."""
    if arguments.setup:
        _set_up(arguments.host)
    show_all()  # editors start programs with TERM=dumb
    peer = Peer(sys.stdin.fileno(), sys.stdout.fileno())
    agent = Agent(peer, read_settings(arguments))
    with contextlib.closing(agent), contextlib.suppress(BrokenPipeError):
        while not peer.ended:
            sources = [peer.reading, *agent.sources]
            ready = select.select(sources, [], [], min(agent.wait_s_max, WAIT_S_MAX))[0]
            agent.advance()
            for message in peer.read() if peer.reading in ready else ():
                agent.handle(message)
    return 0


def _set_up(host: str) -> NoReturn:
    """Become `tiller init`: for a login, editors add words to the command that runs this verb."""
    words = ("--host", host, "init") if host else ("init",)
    os.execv(sys.executable, (sys.executable, "-P", "-m", "tiller_client", *words))  # noqa: S606
