"""The options of verbs about worktrees. Imports the standard library only."""

from collections.abc import Callable

from tiller_client.command_line.parser import Parser
from tiller_client.command_line.turn_arguments import add_directory

NAME_HELP = "a worktree's name, of the repository around this directory, or a unique name elsewhere"
NAME_OR_HERE_HELP = f"{NAME_HELP}; default: the one around this directory"


def add_worktree(parser: Parser) -> None:
    """Add the options with which a new session works in a worktree."""
    parser.add_argument(
        "--worktree",
        metavar="NAME",
        nargs="?",
        const="",
        help="work in the worktree NAME on a branch NAME, made if needed; default: a new name",
    )
    parser.option("--base", "REF", "begin a new worktree with this branch or commit")


def add_worktree_actions(parser: Parser, verb: Callable[..., Parser]) -> None:
    """Add the actions of `tiller worktree`; `verb` makes the parser of each."""
    add = parser.add_subparsers(
        title="actions", metavar="ACTION", dest="action", prog=parser.prog, required=True
    ).add_parser
    one = verb(add, "ls", "list worktrees")
    add_directory(one, None, "only worktrees of the repository around this directory")
    one = verb(add, "path", "print where a worktree is")
    one.add_argument("name", metavar="NAME", nargs="?", default="", help=NAME_OR_HERE_HELP)
    one = verb(add, "land", "bring a worktree's commits onto the branch that it was made from")
    how = one.add_mutually_exclusive_group()
    how.add_argument("--rebase", action="store_true", help="one commit after another, no merge")
    how.add_argument("--squash", action="store_true", help="as a single commit")
    one.option("--onto", "BRANCH", "land on this branch")
    one.flag("--resolve", "if there are conflicts, let the worktree's last session resolve them")
    one.add_argument("name", metavar="NAME", nargs="?", default="", help=NAME_OR_HERE_HELP)
    one = verb(add, "rm", "remove worktrees; they can be restored for 30 days")
    one.flag("--force", "remove even what exists only there")
    one.add_argument("names", metavar="NAME", nargs="*", help=NAME_OR_HERE_HELP)
    one = verb(add, "restore", "put a removed worktree back")
    one.add_argument("name", metavar="NAME", help=NAME_HELP)
