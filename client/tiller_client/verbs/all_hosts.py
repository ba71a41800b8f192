"""What verbs do with `--all`: ask all hosts, or find the host of a session or request."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from tiller_client.command_line import choose
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.fan_out import ANSWER_WITHIN_S, Reason, ask_hosts, reason_of
from tiller_client.connecting.hosts import Host, configured_hosts
from tiller_client.connecting.runtime import choose_remote, chosen_remote, known_remote
from tiller_client.console import complain, print_json
from tiller_client.errors import NoAnswer, TillerError, UsageError
from tiller_client.rendering.text import one_line
from tiller_protocol.ids import ULID_CHARS

OWN = "this machine"
"""The name of the host without a label."""

_Found = TypeVar("_Found")


class HostFailed(msgspec.Struct, frozen=True, tag_field="type", tag="host_failed"):
    """A host that gave no result, as lists with `--all --json` print it."""

    host: str
    reason: Reason
    message: str


class Everywhere:
    """One question to several hosts."""

    def __init__(self, hosts: Sequence[Host], arguments: Namespace) -> None:
        """Ask nothing yet; `arguments` are those of a verb with the option `--all`."""
        self._hosts = hosts
        self._within_s: float = arguments.within or ANSWER_WITHIN_S
        self._json: bool = arguments.json
        self._name = f"tiller {arguments.verb}"
        self.failures: list[tuple[Host, TillerError]] = []

    @property
    def status(self) -> int:
        """The exit status of a list: 1 if a host gave no result."""
        return 1 if self.failures else 0

    def ask(self, work: Callable[[DaemonConnection], _Found]) -> Iterator[tuple[Host, _Found]]:
        """Yield the hosts and what `work` returned there, in the order in which they answer.

        A daemon counts once, as a configuration that is the same on all hosts names this one, too.
        """
        logs = set[str]()

        def labelled(connection: DaemonConnection) -> tuple[str, _Found]:
            return connection.hello.log_id, work(connection)

        for host, found in ask_hosts(self._hosts, self._name, labelled, self._within_s):
            if isinstance(found, TillerError):
                self.failures.append((host, found))
            elif found[0] not in logs:
                logs.add(found[0])
                yield host, found[1]

    def report(self) -> None:
        """Tell the user in one line for each host which gave no result, and why."""
        for host, error in self.failures:
            advice = "; to wait longer, add --within 30s" if isinstance(error, NoAnswer) else ""
            if self._json:
                print_json(HostFailed(host.label, reason_of(error), str(error)))
            complain(f"{host.label or OWN}: {error}{advice}")

    def find(
        self, work: Callable[[DaemonConnection], list[str]], reference: str, kind: str, verb: str
    ) -> str:
        """Choose the host that has what `reference` means, and return the whole id.

        `work` returns the ids of this `kind` on a host, which `verb` lists. A whole id does not
        wait for other hosts. Raises `UsageError` unless just one id matches.
        """
        found: list[tuple[Host, str]] = []
        for host, ids in self.ask(work):
            found += [(host, one) for one in ids if choose.matches(one, reference)]
            if found and len(reference) >= ULID_CHARS:
                break
        if len(found) == 1:
            return self.choose(*found[0])
        if found:
            shown = ", ".join(qualified(host.label, one) for host, one in found[: choose.SHOWN_MAX])
            more = " …" if len(found) > choose.SHOWN_MAX else ""
            raise UsageError(f"{one_line(reference)!r} matches {len(found)} {kind}s: {shown}{more}")
        self.report()
        raise UsageError(
            f"no host that has answered has any {kind} whose id begins or ends with "
            f"{one_line(reference)!r}; see: tiller {verb} --all"
        )

    def choose(self, host: Host, identifier: str) -> str:
        """Let this process use the daemon on `host`; returns `identifier`."""
        if remote := known_remote(host.places):
            choose_remote(remote)
        return identifier


def several_hosts(arguments: Namespace) -> list[Host]:
    """Return all hosts if the verb is to ask all and there are several, or else an empty list."""
    hosts = configured_hosts() if arguments.all else []
    return hosts if len(hosts) > 1 else []


def find_session(arguments: Namespace) -> None:
    """With `--all`, use the host that has the session, and put its whole id into `arguments`."""
    hosts = several_hosts(arguments)
    if not hosts:
        return
    everywhere = Everywhere(hosts, arguments)
    if arguments.session != choose.LAST:
        choose.require_length(arguments.session)
        arguments.session = everywhere.find(choose.session_ids, arguments.session, "session", "ls")
        return
    found = [(host, one) for host, last in everywhere.ask(choose.latest) for one in last]
    everywhere.report()
    if not found:
        raise UsageError("no host that has answered has a session")
    host, latest = max(found, key=lambda each: each[1].updated_at)
    arguments.session = everywhere.choose(host, latest.session_id)


def find_request(arguments: Namespace) -> None:
    """With `--all`, use the host that has the request, and put its whole id into `arguments`."""
    if hosts := several_hosts(arguments):
        find = Everywhere(hosts, arguments).find
        arguments.request = find(choose.request_ids, arguments.request, "open request", "requests")


def qualified(label: str, identifier: str) -> str:
    """An id that names its host, such as `box:8K2Q`."""
    return f"{label}:{identifier}" if label else identifier


def print_with_host(label: str, struct: object) -> None:
    """Print a struct as a line of JSON that begins with its host, by default the one in use."""
    remote = chosen_remote()
    host = label or (remote.host if remote else "")
    print_json({"host": host, **msgspec.to_builtins(struct)})
