"""Every verb of the command line and its options, in groups.

Imports the standard library only. `family` is the module in `verbs` that implements a verb.
"""

import argparse
from collections.abc import Callable
from functools import partial

from tiller_client.command_line.daemon_arguments import add_actions
from tiller_client.command_line.parser import RPC_EPILOG, Parser
from tiller_client.command_line.turn_arguments import (
    SESSION_HELP,
    add_amount,
    add_attachments,
    add_choices,
    add_directory,
    add_ending,
    add_hosts,
    add_limit,
    add_old_or_named,
    add_opening,
    add_prompt,
    add_rules,
    add_sandbox,
    add_session,
    add_span,
    add_states,
    event_number,
    positive,
)
from tiller_client.command_line.values import any_text, path, program_word
from tiller_client.command_line.worktree_arguments import add_worktree, add_worktree_actions

AddParser = Callable[..., Parser]
"""Type of the method `add_parser`, whose class has no public name in argparse."""

ACCOUNT = "chatgpt"
"""The account of `login` and `logout`."""

LETTERS = {"y": "once", "a": "always", "h": "always_here", "n": "reject"}
"""The keys of a chat for answers."""

SETTINGS = (
    *("model", "agent", "variant", "approve", "sandbox", "max-steps", "budget"),
    *("session-budget", "tools", "follow-ups", "title", "workspace"),
)
"""The settings that `set` can change."""


def _verb(add: AddParser, family: str, name: str, text: str) -> Parser:
    parser = add(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.flag("--json", "print one JSON object per line")
    parser.set_defaults(family=family, verb=name, program=parser.prog)
    parser.set_defaults(
        quiet=False, no_wait=False, wait=False, detach=False
    )  # not all verbs have these options
    return parser


def _add_turns(add: AddParser) -> None:
    parser = _verb(add, "chat", "chat", "open a chat here, as tiller without a verb does")
    add_opening(parser)
    add_worktree(parser)
    add_choices(parser)
    add_rules(parser)
    add_session(parser, default="", meaning="a new session")
    text = "the first message; it may stand without SESSION if it has several words"
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", default="", help=text)
    parser = _verb(add, "board", "board", "show all sessions in a window, live")
    add_directory(parser, None, "only sessions of this workspace")
    parser.flag("--follow", "with --json: print the sessions, and then every change")
    text = "show only sessions with this word, or with repo:NAME, host:NAME or group:NAME"
    parser.add_argument("filter", metavar="FILTER", nargs="*", help=text)
    parser = _verb(add, "turns", "exec", "run one turn and stream it")
    add_directory(parser)
    add_worktree(parser)
    add_choices(parser)
    add_rules(parser)
    parser.option("--session", "SESSION", SESSION_HELP + "; default: a new session")
    text = "file with a JSON Schema for the final message"
    parser.option("--output-schema", "F", text, path)
    add_attachments(parser)
    add_amount(parser)
    add_ending(parser)
    add_prompt(parser)
    parser = _verb(add, "turns", "resume", "continue a session without a new message")
    add_choices(parser)
    add_rules(parser)
    add_amount(parser)
    add_ending(parser)
    add_session(parser, default="", meaning="choose from a list")

    parser = _verb(add, "follow", "attach", "follow a session from its first event on")
    add_span(parser)
    parser.flag("--until-idle", "exit when no turn is running")
    add_amount(parser)
    add_hosts(parser, "find the host that has the session")
    add_session(parser, default="last")
    parser = _verb(add, "follow", "log", "show the events of a session so far")
    add_span(parser)
    add_amount(parser, quiet=False)
    add_session(parser, default="last")


def _add_sessions(add: AddParser) -> None:
    parser = _verb(add, "sessions", "new", "create a session without a turn")
    add_directory(parser)
    add_worktree(parser)
    add_choices(parser)
    add_rules(parser)
    parser = _verb(add, "sessions", "ls", "list sessions, most recently active first")
    add_directory(parser, None, "only sessions of this workspace")
    parser.flag("--archived", "list archived sessions instead")
    parser.option("--of", "SESSION", "list this session's sub-agents instead")
    add_states(parser)
    add_limit(parser)
    add_hosts(parser, "list all sessions, of all hosts in your configuration")
    parser.flag("--watch", "then print a line whenever a session needs something else")
    text = "find sessions by the text in them"
    parser = _verb(add, "search", "search", text)
    add_directory(parser)
    parser.flag("--all", "search all workspaces")
    parser.flag("--archived", "include archived sessions")
    add_limit(parser)
    parser.add_argument("query", metavar="WORD", nargs="+", help="a word, 'a phrase', or prefix*")
    parser = _verb(add, "sessions", "show", "show a session as it is now")
    parser.flag("--full", "show the whole output of calls")
    parser.option("--tail", "N", "show only the last N items", positive)
    text = "print a turn's system prompt; TURN is `last` or the turn's id"
    parser.option("--prompt", "TURN", text)
    parser.option(
        "--why",
        "CALL",
        "print why a call ran or did not run; CALL: `last`, an id, or words from its line",
    )
    add_session(parser, default="last")
    parser = _verb(add, "sessions", "archive", "archive a session")
    parser.flag("--undo", "take the session out of the archive")
    add_session(parser)
    parser = _verb(add, "sessions", "rm", "delete sessions and their stored data for good")
    parser.flag("--yes", "do not ask")
    add_old_or_named(parser)
    parser = _verb(add, "sessions", "fork", "create a session with the history of another session")
    parser.option("--at", "N", "share events up to N; default: all events", event_number)
    add_session(parser)
    parser = _verb(add, "settings", "set", "change a setting of a session, from its next turn on")
    add_session(parser)
    parser.add_argument("name", metavar="NAME", choices=SETTINGS, help=", ".join(SETTINGS))
    text = 'the new value; "" resets it'
    parser.add_argument("value", metavar="VALUE", type=any_text, help=text)


def _add_worktrees(add: AddParser) -> None:
    text = "list, land, remove and restore the worktrees of sessions"
    add_worktree_actions(
        add("worktree", help=text, description=text[0].upper() + text[1:] + "."), _action
    )


def _action(add: AddParser, name: str, text: str) -> Parser:
    parser = _verb(add, "worktrees", name, text)
    parser.set_defaults(verb="worktree")
    return parser


def _add_inputs(add: AddParser) -> None:
    parser = _verb(add, "inputs", "send", "start a turn, or steer the running turn")
    parser.set_defaults(approve=None, sandbox=None, detach=True)
    how = parser.add_mutually_exclusive_group()
    text = "let the running turn take the input when its other work is done"
    how.add_argument("--queue", action="store_true", help=text)
    how.add_argument("--no-reply", action="store_true", help="only add the message to history")
    parser.flag("--wait", "follow the message's turn; Ctrl-C leaves it running")
    add_amount(parser)
    add_choices(parser)
    add_attachments(parser)
    add_session(parser)
    parser.add_argument("text", metavar="TEXT", help="the message, or - to read it from stdin")
    parser = _verb(add, "inputs", "steer", "send a message to the running turn")
    parser.option("--turn", "ID", "only if this turn is running")
    add_attachments(parser)
    add_session(parser)
    parser.add_argument("text", metavar="TEXT", help="the message, or - to read it from stdin")
    parser = _verb(add, "inputs", "interrupt", "end the running turn at once")
    parser.option("--turn", "ID", "only if this turn is running")
    parser.option("--background", "ID", "end this background command or sub-agent")
    add_session(parser)
    parser = _verb(add, "inputs", "queue", "show or change queued inputs")
    add_session(parser)
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--remove", metavar="INPUT", help="drop this input")
    change.add_argument("--promote", metavar="INPUT", help="steer or start a turn with this input")
    change.add_argument("--edit", nargs=2, metavar=("INPUT", "TEXT"), help="replace INPUT's text")
    change.add_argument(
        "--move", nargs=2, metavar=("INPUT", "POSITION"), help="move INPUT to POSITION; 0 is next"
    )


def _add_requests(add: AddParser) -> None:
    parser = _verb(add, "requests", "requests", "list open requests")
    add_hosts(parser, "list the requests of all hosts in your configuration")
    add_session(parser, default="", meaning="all sessions")
    parser = _verb(add, "requests", "answer", "answer a request")
    add_hosts(parser, "find the host that has the request")
    text = "an id, its beginning or end, or a session that asks only one thing; box:ID: on a host"
    parser.add_argument("request", metavar="REQUEST", help=text)
    parser.add_argument(
        "decision",
        type=lambda word: LETTERS.get(word, word),
        choices=("once", "always", "always_here", "reject", "answer"),
        help="or y, a, h, n, as in a chat",
    )
    parser.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        default="",
        help="the answer, or a reason; rejecting a call without a reason ends the turn",
    )
    parser = _verb(add, "rules", "rules", "list or revoke lasting permission rules")
    parser.intermixed = True
    parser.add_argument("action", nargs="?", choices=("list", "revoke"), default="list")
    parser.add_argument("rules", metavar="RULE", nargs="*", help="the id of a rule to revoke")
    add_directory(parser, None, "only rules of this workspace")
    parser.option("--session", "SESSION", "include the rules of this session")


def _add_history(add: AddParser) -> None:
    parser = _verb(add, "history", "compact", "summarise a session's history now")
    add_amount(parser)
    add_session(parser)
    parser = _verb(add, "history", "revert", "undo a turn and later turns, in history and files")
    parser.option("--step", "N", "undo only step N and later steps", positive)
    add_session(parser)
    parser.add_argument(
        "turn",
        metavar="TURN",
        nargs="?",
        default="last",
        help="its id or number; default: last",
    )
    parser = _verb(add, "history", "unrevert", "undo the last revert")
    add_session(parser)
    parser = _verb(add, "history", "diff", "show the changes that a session made to files")
    parser.option("--path", "PATH", "only this file or directory of the workspace")
    parser.option("--step", "N", "only step N of the turn", positive)
    add_session(parser, default="last")
    parser.add_argument(
        "turn", metavar="TURN", nargs="?", help="the turn's id, or last; default: all turns"
    )
    parser = _verb(add, "history", "shell", "run your own command in the workspace")
    add_amount(parser)
    add_session(parser)
    parser.add_argument("command", metavar="COMMAND")


def _add_catalog(add: AddParser) -> None:
    text = "list the models, and check them with their providers"
    parser = _verb(add, "catalog", "models", text)
    add_directory(parser)
    parser.flag("--all", "include all models that the providers offer")
    for name, text in (
        ("agents", "list the agents"),
        ("tools", "list the tools that models can use"),
        ("commands", "list the custom commands, which are typed as /NAME"),
    ):
        add_directory(_verb(add, "catalog", name, text))
    parser = _verb(add, "machine.config", "config", "show, find or check the configuration")
    parser.add_argument(
        "action", nargs="?", choices=("path", "show", "check"), default="show", help="default: show"
    )
    text = "find a model, write a first configuration and try the model"
    parser = _verb(add, "machine.init", "init", text)
    parser.flag("--yes", "do not ask; take the first model that answers")
    parser.flag("--no-try", "send nothing to the model")
    parser = _verb(add, "trust", "trust", "trust a project's .tiller in its present state")
    add_directory(parser)
    parser.flag("--yes", "do not ask")
    parser = _verb(add, "trust", "untrust", "stop trusting a project's .tiller")
    add_directory(parser)
    _add_account(_verb(add, "accounts", "login", "use your ChatGPT plan: log in in a browser"))
    _add_account(_verb(add, "accounts", "logout", "revoke a login, and forget its tokens"))
    _verb(add, "accounts", "accounts", "list the accounts to which you have logged in")
    parser = _verb(add, "mcp", "mcp", "list the MCP servers, log in to one, or log out of one")
    parser.intermixed = True
    parser.add_argument("action", nargs="?", choices=("list", "login", "logout"), default="list")
    parser.add_argument("server", metavar="NAME", nargs="?", help="server, for login and logout")
    parser.flag("--no-browser", "only print the address for the login")
    parser = _verb(add, "machine.doctor", "doctor", "check the installation and the configuration")
    parser.flag("--online", "contact the providers, too")
    text = "run a command in the sandbox, or describe the sandbox"
    parser = _verb(add, "machine.sandbox", "sandbox", text)
    add_directory(parser)
    add_sandbox(parser)
    text = "command and arguments, after --"
    parser.add_argument("command", metavar="CMD", type=program_word, nargs="*", help=text)


def _add_account(parser: Parser) -> None:
    parser.option("--account", "NAME", "account, if you have several; default: chatgpt")
    parser.set_defaults(account=ACCOUNT)
    if parser.prog.endswith("login"):
        parser.flag("--no-browser", "only print the address for the login")


def _add_daemon(add: AddParser) -> None:
    parser = add("daemon", help="run, start, stop or inspect the daemon; install its service")
    action = parser.add_subparsers(metavar="ACTION", dest="action", required=True).add_parser
    add_actions(partial(_verb, action))


def _add_fleet(add: AddParser) -> None:
    from tiller_client.command_line.fleet_arguments import add_fleet_actions  # few need them

    _verb(add, "fleet", "gateway", "connect this host with the fleet in your configuration")
    text = "let hosts of the fleet work, and see what they do"
    add_fleet_actions(add("fleet", help=text, description=text[0].upper() + text[1:] + "."), _order)


def _order(add: AddParser, name: str, text: str) -> Parser:
    parser = _verb(add, "fleet", name, text)
    parser.set_defaults(verb="fleet")
    return parser


def _add_rest(add: AddParser) -> None:
    parser = _verb(add, "rpc", "rpc", "talk to a program, such as an editor, in lines of JSON")
    parser.add_argument("--name", default="tiller rpc", help="the frontend's name; shown to others")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = RPC_EPILOG
    parser = _verb(add, "acp", "acp", "speak the Agent Client Protocol with an editor on stdio")
    add_choices(parser)
    add_rules(parser)
    text = "run tiller init instead; editors do so for a login"
    parser.add_argument("setup", nargs="?", choices=("init",), help=text)
    parser = _verb(add, "schema", "schema", "print the protocol as JSON Schema")
    parser.flag("--typescript", "print TypeScript types instead")
    parser = _verb(add, "completions", "completions", "print a shell completion script for tiller")
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    text = "print the lines that load tiller's plugin in an editor"
    parser = _verb(add, "machine.editors", "editors", text)
    parser.add_argument("editor", choices=("nvim",))
    parser = _verb(add, "demo", "demo", "see tiller work with real tools, without a key or network")
    parser.flag("--remove", "remove the demo's files at the end")


VERBS: dict[Callable[[AddParser], None], tuple[str, ...]] = {
    _add_turns: ("chat", "board", "exec", "resume", "attach", "log"),
    _add_sessions: ("new", "ls", "search", "show", "archive", "rm", "fork", "set"),
    _add_worktrees: ("worktree",),
    _add_inputs: ("send", "steer", "interrupt", "queue"),
    _add_requests: ("requests", "answer", "rules"),
    _add_history: ("compact", "revert", "unrevert", "diff", "shell"),
    _add_catalog: (
        *("models", "agents", "tools", "commands"),
        *("config", "init", "trust", "untrust", "login", "logout", "accounts"),
        *("mcp", "doctor", "sandbox"),
    ),
    _add_daemon: ("daemon",),
    _add_fleet: ("gateway", "fleet"),
    _add_rest: ("rpc", "acp", "schema", "completions", "editors", "demo"),
}
"""The verbs that each function adds, in the order in which help lists them."""
