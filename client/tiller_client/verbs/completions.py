"""`completions`: prints a shell completion script for `tiller`."""

from argparse import Namespace

from argcomplete.shell_integration import shellcode

from tiller_client.console import print_raw


def run(arguments: Namespace) -> int:
    """Print the script for the given shell."""
    print_raw(shellcode(["tiller"], shell=arguments.shell).lstrip("\n"))
    return 0
