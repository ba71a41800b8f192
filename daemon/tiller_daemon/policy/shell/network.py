"""Decides whether a command line may use the network although its sandbox has none. Pure.

The table of commands known to need the network is only a hint, so that the user is asked before
such a command fails. Only a rule or the user's answer opens the network.
"""

import re
from collections.abc import Sequence
from typing import Final

from tiller_daemon.policy.shell.command_line import CommandLine, SimpleCommand, parse
from tiller_daemon.policy.shell.levels import (
    NETWORK,
    LineVerdict,
    ask,
    by_rule,
    last_match,
    rule_for_everything,
    seems_to_read,
    strict_rule,
)
from tiller_daemon.policy.shell.programs import find_program, word_set
from tiller_daemon.policy.shell.purposes import purpose_of, subcommands
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_protocol.settings import Rule

_ALWAYS: Final = word_set(
    """bunx curl daphne gunicorn http-server hypercorn json-server live-server pnpx serve sftp ssh
    uvicorn uvx webpack-dev-server wget"""
)
"""Programs that always need the network. Servers do, as nobody could reach them otherwise."""

_TO_A_HOST: Final = word_set("rsync scp")
"""Programs that need the network if an operand names a host."""

_ALONE: Final = word_set("bundle vite yarn")
"""Programs that install packages or serve if they are run without an operand."""

_SUBCOMMANDS: Final = {
    "git": "clone fetch ls-remote pull push submodule.update",
    "npm": """add audit ci create dist-tag i in install install-ci-test install-test it outdated
        publish run.dev run.preview run.serve run.start search show start up update upgrade view
        whoami""",
    "npx": """astro.dev http-server json-server live-server next.dev next.start ng.serve serve
        vite.dev vite.preview vite.serve wrangler.dev""",
    "pnpm": """add audit create dev dlx i install outdated preview publish run.dev run.preview
        run.serve run.start serve start up update""",
    "yarn": """add create dev dlx install outdated preview publish run.dev run.preview run.serve
        run.start serve start up upgrade""",
    "bun": """add create dev i install outdated preview publish run.dev run.preview run.serve
        run.start start update x""",
    "vite": "--host --port dev preview serve",
    "astro nuxt": "dev preview",
    "next": "dev start",
    "ng webpack vue-cli-service": "serve",
    "wrangler": "dev",
    "deno": "add install",
    "python": """flask.run http.server manage.py.runserver pip.download pip.index pip.install
        pip.wheel uvicorn""",
    "flask streamlit": "run",
    "django-admin manage.py": "runserver",
    "rails": "s server",
    "php": "-S artisan.serve",
    "hugo jekyll mkdocs": "serve server",
    "pip pip3": "download index install wheel",
    "pipx": "install run upgrade upgrade-all",
    "uv": "add lock pip.compile pip.install pip.sync publish python.install sync tool.install",
    "poetry": "add install lock publish update",
    "pdm pipenv rye": "add install lock sync update",
    "conda": "create install search update",
    "cargo": "add fetch install publish search update",
    "rustup": "component.add install target.add toolchain.install update",
    "go": "get install mod.download mod.tidy",
    "gem": "fetch install push search update",
    "bundle": "install lock outdated update",
    "composer": "create-project install require update",
    "mix": "deps.get deps.update",
    "dart flutter": "pub.add pub.get pub.upgrade",
    "dotnet": "add restore",
    "docker podman": "login pull push search",
    "apt apt-get": "dist-upgrade full-upgrade install update upgrade",
    "apk dnf": "add install update upgrade",
    "brew": "fetch install search update upgrade",
    "terraform": "get init",
}
"""Subcommands that need the network or serve, spelled as in the table of programs."""

_BY_NAME: Final = {
    name: word_set(needing) for names, needing in _SUBCOMMANDS.items() for name in names.split()
}

_HOST: Final = re.compile(r"(?:[\w.-]+@)?[\w.-]{2,}:|[a-z]+://")
"""The beginning of an operand that names a host; one letter and a colon is a Windows drive."""

_NEEDS: Final = "it is known to need the network, which the sandbox blocks"


def judge_network(line: str, rules: Sequence[Rule]) -> LineVerdict:
    """Decide whether a line may use the network; the weakest of `rules` come first.

    Only rules that name the permission count. The network is open to the whole line or not at all,
    so it is allowed only if rules cover every command. It is denied without a question if no
    command is known to need it.
    """
    closed = LineVerdict("deny", SandboxLevel.SESSION, f"`{line}` runs without a network.", line)
    if seems_to_read(line):
        return closed  # No rule or answer opens the network to the read-only sandbox.
    named = [rule for rule in rules if rule.permission == NETWORK]
    parsed = parse(line)
    strict = [rule for each in parsed.commands if (rule := strict_rule(each, NETWORK, named))]
    rule = next((rule for rule in strict if rule.action == "deny"), next(iter(strict), None))
    if rule := rule or _allowing_rule(parsed, named):
        return by_rule(rule, line)
    for command in filter(needs_network, parsed.commands):
        return ask(command.text, _NEEDS)
    return closed


def needs_network(command: SimpleCommand) -> bool:
    """Whether the table says that a command needs the network, even in a wrapper such as `sudo`."""
    wraps = find_program(command.name).wraps and command.name != "find"
    inner = command.wrapped() if wraps else None
    return is_known(command) or (inner is not None and is_known(inner))


def is_known(command: SimpleCommand) -> bool:
    """Whether the table says that a command's own program needs the network."""
    name, arguments = command.name, command.words[1:]
    operands = [word.text for word in arguments if not word.text.startswith("-")]
    if name in _ALWAYS or (name in _ALONE and not operands):
        return True
    if name in _TO_A_HOST:
        return any(map(_HOST.match, operands))
    needing = _BY_NAME.get("python" if name.startswith("python") else name, frozenset[str]())
    return any(subcommand in needing for subcommand, _ in subcommands(arguments))


def _allowing_rule(parsed: CommandLine, rules: Sequence[Rule]) -> Rule | None:
    """Return a rule for everything, or one of the rules that together cover a plain line.

    A command that only passes on its input needs no rule, as it can't be made to send anything.
    """
    everything = rule_for_everything(NETWORK, rules)
    if everything and everything.action == "allow":
        return everything
    if not parsed.plain:
        return None
    found: list[Rule] = []
    for command in parsed.commands:
        rule = last_match(NETWORK, command.text, rules)
        if rule and rule.action == "allow" and not command.assigns:
            found.append(rule)
        elif purpose_of(command) != "passes_on" or command.assigns:
            return None
    return next(iter(found), None)
