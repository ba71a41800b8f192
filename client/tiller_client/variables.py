"""Reads the user's commands in environment variables, such as PAGER.

Imports the standard library only, and little of it, as every start needs this module.
"""

import os

from tiller_client.errors import UsageError


def command_in(variable: str, default: str = "") -> list[str]:
    """Split the command in an environment variable into words, as a shell does.

    If the variable is not set, `default` is split. Raises `UsageError` if there is no way to split
    the command.
    """
    import shlex

    command = os.environ.get(variable, default)
    try:
        return shlex.split(command)
    except ValueError as error:
        reason = str(error).lower()
        raise UsageError(
            f"the variable {variable} does not hold a valid command ({reason}): {command}"
        ) from None
