"""The tools: one file each, and the table of those that are built in."""

from typing import Final

from tiller_daemon.tools.apply_patch import APPLY_PATCH
from tiller_daemon.tools.base import Tool
from tiller_daemon.tools.bash import BASH
from tiller_daemon.tools.bash_input import BASH_INPUT
from tiller_daemon.tools.bash_kill import BASH_KILL
from tiller_daemon.tools.bash_output import BASH_OUTPUT
from tiller_daemon.tools.diagnostics import DIAGNOSTICS
from tiller_daemon.tools.edit import EDIT
from tiller_daemon.tools.fetch import FETCH
from tiller_daemon.tools.glob import GLOB
from tiller_daemon.tools.grep import GREP
from tiller_daemon.tools.ls import LS
from tiller_daemon.tools.plan import PLAN
from tiller_daemon.tools.question import QUESTION
from tiller_daemon.tools.read import READ
from tiller_daemon.tools.task import TASK
from tiller_daemon.tools.write import WRITE

BUILT_IN: Final[tuple[Tool, ...]] = (
    READ,
    WRITE,
    EDIT,
    APPLY_PATCH,
    LS,
    GLOB,
    GREP,
    BASH,
    BASH_OUTPUT,
    BASH_KILL,
    BASH_INPUT,
    DIAGNOSTICS,
    FETCH,
    PLAN,
    QUESTION,
    TASK,
)
"""The tools that every agent may be given; a new one is a file and a line here."""
