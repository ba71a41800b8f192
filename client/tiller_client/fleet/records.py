"""What the fleet's tables hold, as JSON, and how a task changes.

A task has one state. Each change of it replaces a known version, so of two changes at the same time
only one takes place:

    queued ──▶ running ──▶ done                        the host has reported how it ended
      │ ▲         │ ├────▶ cancelled                   after the host has stopped it
      │ └─────────┤ │
      │   lost,   │ └────▶ unknown ──▶ done            the host is lost; it may still come back
      ▼   retried ▼
    cancelled   queued
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field, structs

from tiller_protocol.events import Outcome
from tiller_protocol.fleet import Name
from tiller_protocol.settings import Budget

State = Literal["queued", "running", "done", "cancelled", "unknown"]

FINAL: frozenset[State] = frozenset({"done", "cancelled"})
"""No task leaves these states."""

RETRIES_MAX = 100

SHORT_ID_CHARS = 8


class Presence(Struct, frozen=True):
    """A sign of life of a host; it expires."""

    instance: str
    """Identifies the host's state directory, so that no two hosts have one name."""


class HostInfo(Struct, frozen=True):
    """What is known of a host, also while it is away."""

    name: str
    """Its name in the fleet."""
    version: str
    """Version of tiller there."""
    platform: str
    """The operating system, such as `Linux-6.1`."""
    home: str
    """The user's home directory there."""
    labels: tuple[Name, ...] = ()
    """What it offers."""
    slots: int = 0
    """How many tasks it runs at once."""
    problem: str = ""
    """What the gateway can't do at the moment."""


class Draining(Struct, frozen=True):
    """The wish that a host takes no more tasks."""

    by: str


class TaskSpec(Struct, frozen=True, omit_defaults=True):
    """What to do."""

    prompt: str
    """The input of the session."""
    repository: str
    """What `git clone` takes."""
    ref: str = ""
    """Branch, tag or commit; empty: the repository's default branch."""
    directory: str = ""
    """Where in the repository to work."""
    labels: tuple[Name, ...] = ()
    """What a host must offer."""
    approve: Literal["never", "ask", "always"] = "never"
    """What happens if a call needs approval; `ask` waits for somebody to answer."""
    model: str | None = None
    """The model; `None`: as the host is configured."""
    agent: str | None = None
    """The agent; `None`: as the host is configured."""
    budget: Budget | None = None
    """Limits for the session."""
    push: bool = False
    """Push the branch to the repository, instead of keeping it as a bundle in the broker."""
    retries: Annotated[int, Meta(ge=0, le=RETRIES_MAX)] = 0
    """How often to run it again after its host was lost."""


class Report(Struct, frozen=True, omit_defaults=True):
    """How a task has ended."""

    outcome: Outcome | Literal["not_started"]
    """The turn's outcome; `not_started`: no session could be started."""
    message: str = ""
    """The model's last message, shortened."""
    problem: str = ""
    """What went wrong."""
    cost: float | None = None
    """US dollars."""
    duration_s: float = 0.0
    """Seconds that the turn took."""
    branch: str = ""
    """The branch with the work, in the repository if `pushed`, else in the bundle."""
    commits: int = 0
    """Number of commits on the branch."""
    pushed: bool = False
    """Whether the branch is in the repository."""
    bundle: str = ""
    """The object with a git bundle of the branch."""
    patch: str = ""
    """The object with changes that were not committed, as a diff."""
    was_fenced: bool = False
    """Whether it was stopped because the host could not renew its lease."""


class Task(Struct, frozen=True, omit_defaults=True):
    """One task."""

    id: str
    """A ULID, or what was given: lower-case letters, digits, `-` and `_`."""
    spec: TaskSpec
    """What to do."""
    by: str = ""
    """Who has submitted it."""
    state: State = field(default_factory=lambda: "queued")
    """See above; always present."""
    attempt: int = 1
    """Number of this attempt, from 1."""
    host: str = ""
    """The host that has taken it."""
    instance: str = ""
    """The `Presence.instance` of the host that has taken it."""
    session_id: str = ""
    """The session there."""
    commit: str = ""
    """What the session's worktree was made from."""
    cancel: bool = False
    """Whether it is to stop."""
    report: Report | None = None
    """How it has ended."""

    @property
    def short_id(self) -> str:
        """The end of a ULID, or the id that was given."""
        return self.id[-SHORT_ID_CHARS:] if self.id.isupper() else self.id

    @property
    def work_id(self) -> str:
        """Identifies this attempt; the ids of its submissions begin with it."""
        return f"{self.id}.{self.attempt}"

    def is_of(self, instance: str) -> bool:
        """Whether that host has this attempt, and has not reported its end."""
        return self.state in {"running", "unknown"} and self.instance == instance


def taken(task: Task, host: str, instance: str) -> Task:
    """A queued task that a host begins."""
    assert task.state == "queued"
    return structs.replace(task, state="running", host=host, instance=instance)


def lost(task: Task) -> Task:
    """A running task whose host is lost."""
    assert task.state == "running"
    if task.cancel or task.attempt > task.spec.retries:
        return structs.replace(task, state="unknown")
    return again(task)


def again(task: Task) -> Task:
    """The next attempt of a task, on any host."""
    attempt = task.attempt + 1
    return structs.replace(
        task, state="queued", attempt=attempt, host="", instance="", session_id="", commit=""
    )


def ended(task: Task, report: Report) -> Task:
    """A task whose host reports its end; one that was fenced is tried again."""
    if report.was_fenced and not task.cancel and task.attempt <= task.spec.retries:
        return again(task)
    is_cancelled = task.cancel and report.outcome in {"interrupted", "not_started"}
    return structs.replace(task, state="cancelled" if is_cancelled else "done", report=report)


def cancelled(task: Task) -> Task | None:
    """A task that somebody cancels; `None` if it has ended."""
    if task.state in FINAL:
        return None
    if task.state == "queued":
        return structs.replace(task, state="cancelled", cancel=True)
    return structs.replace(task, cancel=True)


encode = msgspec.json.encode
"""Encodes a record."""

decode_task = msgspec.json.Decoder(Task).decode
decode_host = msgspec.json.Decoder(HostInfo).decode
decode_presence = msgspec.json.Decoder(Presence).decode
