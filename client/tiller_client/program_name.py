"""The words with which the user runs this program, for the commands that hints name."""

PROGRAM = "tiller"

_host = [""]


def use_host(host: str) -> None:
    """From now on, hints are about the daemon of another machine, or with "", of this one."""
    _host[0] = host


def program() -> str:
    """The first words of a command line for the same daemon: `tiller` or `tiller --host HOST`."""
    return f"{PROGRAM} --host {_host[0]}" if _host[0] else PROGRAM
