"""The tools: one file each, and the table of those that are built in."""

from typing import Final

from tiller_daemon.tools.base import Tool
from tiller_daemon.tools.bash import BASH
from tiller_daemon.tools.read import READ

BUILT_IN: Final[tuple[Tool, ...]] = (READ, BASH)
"""The tools that every agent may be given; a new one is a file and a line here."""
