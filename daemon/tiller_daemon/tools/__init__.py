"""The tools, in one file each, and the table of the built-in tools.

`ls.py` is a short example. Related tools share a folder. `base.py` defines the interface of a tool,
and `__init__.py` lists the built-in tools. `path_access.py` finds the permissions that a path
needs.
"""

from typing import Final

from tiller_daemon.tools.base import Tool
from tiller_daemon.tools.commands.bash import BASH
from tiller_daemon.tools.commands.bash_input import BASH_INPUT
from tiller_daemon.tools.commands.bash_kill import BASH_KILL
from tiller_daemon.tools.commands.bash_output import BASH_OUTPUT
from tiller_daemon.tools.diagnostics import DIAGNOSTICS
from tiller_daemon.tools.editing.apply_patch import APPLY_PATCH
from tiller_daemon.tools.editing.edit import EDIT
from tiller_daemon.tools.editing.write import WRITE
from tiller_daemon.tools.ls import LS
from tiller_daemon.tools.plan import PLAN
from tiller_daemon.tools.question import QUESTION
from tiller_daemon.tools.read import READ
from tiller_daemon.tools.search.glob import GLOB
from tiller_daemon.tools.search.grep import GREP
from tiller_daemon.tools.task import TASK
from tiller_daemon.tools.web.fetch import FETCH

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
"""The tools that an agent can have; tools for web searches and of MCP servers join at run time."""
