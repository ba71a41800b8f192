"""Renders events that take one or a few lines; pure. All frontends share `Reporter`."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from tiller_client.program_name import program
from tiller_client.rendering.activity import which_attempt
from tiller_client.rendering.items import plan_lines
from tiller_client.rendering.labels import background_line, input_line
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import (
    SHORT_ID_CHARS,
    UNCUT,
    cells,
    count,
    counted,
    cut,
    dollars,
    one_line,
    quoted_path,
    seconds,
)
from tiller_client.rendering.wrap import INDENT, hanging, sentence
from tiller_protocol.catalog import CatalogResult
from tiller_protocol.events import (
    AnyBody,
    BackgroundChanged,
    ErrorRaised,
    HistoryCompacted,
    HistoryReverted,
    PlanUpdated,
    QueueChanged,
    RequestOpened,
    RequestResolved,
    StatusChanged,
    TurnEnded,
    WarningRaised,
)
from tiller_protocol.items import (
    BackgroundCommand,
    PlanEntry,
    QueuedInput,
    Request,
    ToolCall,
    Usage,
)
from tiller_protocol.settings import Settings
from tiller_protocol.snapshot import Mark, SessionSummary, Snapshot

QUEUED_COLUMNS = 60
BRANCH_COLUMNS = 30
PROMPT_COLUMNS = 40

_WAITING = (("steer", "for the next step"), ("queue", "queued"), ("start", "queued"))
"""Labels of queued inputs, by their delivery."""

_WAITS = (("queue", "waits, because no turn is running"),)
"""The label if no turn will take the input by itself; then there is no steering."""


class Reporter:
    """Reports the events of one session in lines, but nothing twice."""

    def __init__(
        self, background: Iterable[BackgroundCommand] = (), requests: Iterable[Request] = ()
    ) -> None:
        """Treat the states in `background` as reported already; `requests` are open."""
        self._background = {one.id: one.state for one in background}
        self._asked = {one.id: one.item_id for one in requests}
        """The calls that wait for an answer, by the ids of the requests."""
        self._rejected: set[str] = set()
        """The calls of this turn that a user has rejected."""
        self._error = ""
        self._plan: Sequence[PlanEntry] = ()
        """The plan that was shown last."""

    def lines(self, body: AnyBody, theme: Theme, columns: int = UNCUT) -> Iterator[str]:
        """The lines of the next event; empty for events that each frontend shows in its own way."""
        match body:
            case StatusChanged(status="retry"):
                yield _retry_line(body, theme, columns)
            case RequestOpened(request):
                self._asked[request.id] = request.item_id
            case RequestResolved():
                asked = self._asked.pop(body.request_id, "")
                if body.resolution == "reject":
                    self._rejected.add(asked)
                yield _resolution_line(body, theme, columns)
            case HistoryCompacted():
                yield _compaction_line(body, theme)
            case HistoryReverted():
                yield revert_line(body, columns=columns)
            case WarningRaised():
                yield theme.asking(sentence("! ", body.message, columns))
            case PlanUpdated():
                yield from self.plan(body.plan, theme, columns)
            case BackgroundChanged():
                for one in body.background:
                    if self._background.get(one.id) != one.state:
                        self._background[one.id] = one.state
                        yield theme.dim(background_line(one))
            case _:
                pass

    def plan(self, plan: Sequence[PlanEntry], theme: Theme, columns: int = UNCUT) -> list[str]:
        """The plan as a checklist, without what was shown before."""
        return plan_lines(self._changed(plan), columns, theme)

    def _changed(self, plan: Sequence[PlanEntry]) -> Sequence[PlanEntry]:
        """The entries of a plan that differ from those shown last; all if the plan is another."""
        before, self._plan = self._plan, plan
        if [one.text for one in before] != [one.text for one in plan]:
            return plan
        return [new for old, new in zip(before, plan, strict=True) if old != new]

    def call(self, call: ToolCall) -> ToolCall:
        """The call without the output of a rejection, which has been reported."""
        is_told = call.id in self._rejected and call.error_kind == "denied"
        return structs.replace(call, output="") if is_told else call

    def error(self, body: ErrorRaised | TurnEnded) -> str:
        """The message to show for an error; empty if what ends a turn has just been shown."""
        told = self._error
        if isinstance(body, ErrorRaised):
            self._error = body.message
            return body.message
        rejected, self._rejected, self._error = self._rejected, set(), ""
        if body.error is None or (body.error.code == "rejected" and rejected):
            return ""
        return "" if body.error.message == told else body.error.message


def queue_lines(body: QueueChanged, known: tuple[QueuedInput, ...], theme: Theme) -> Iterator[str]:
    """A line for each kind of waiting input; inputs in `known` are not repeated."""
    new = [one for one in body.queue if one not in known]
    for delivery, label in _WAITS if body.waits else _WAITING:
        lines = [input_line(one) for one in new if one.delivery == delivery]
        if lines:
            waiting = ", ".join(cut(line, QUEUED_COLUMNS) for line in lines)
            yield theme.dim(f"{label}: {waiting}")


def revert_line(body: HistoryReverted, prompt: str = "", columns: int = UNCUT) -> str:
    """What a revert did; `prompt` is the input of the turn that it went back to, if known."""
    done = "the revert was undone" if body.undone else "history was reverted"
    if prompt:
        step = f"step {body.before_step} of " if body.before_step else ""
        done += f" to before {step}“{cut(one_line(prompt), PROMPT_COLUMNS)}”"
    restored = f"; {counted(body.restored, 'file')} put back" if body.restored else ""
    conflicts = f"; files left as they are: {', '.join(map(quoted_path, body.conflicts))}"
    return hanging(f"⟲ {done}{restored}{conflicts if body.conflicts else ''}", columns)


def _compaction_line(body: HistoryCompacted, theme: Theme) -> str:
    before, after = count(body.tokens_before), count(body.tokens_after)
    done = "summarised" if body.item_id else "old tool output left out"
    return theme.dim(f"≡ {done}: {before} → {after} tokens")


def _retry_line(body: StatusChanged, theme: Theme, columns: int) -> str:
    delay = "" if body.delay_s is None else f" in {seconds(body.delay_s)}"
    cause = f": {one_line(body.cause)}" if body.cause else ""
    return theme.asking(hanging(f"↻ retry{which_attempt(body)}{delay}{cause}", columns))


def _resolution_line(body: RequestResolved, theme: Theme, columns: int) -> str:
    by = f" by {one_line(body.by)}" if body.by else " by a rule"
    text = f": {one_line(body.text)}" if body.text else ""
    match body.resolution:
        case "once" | "always" | "always_here":
            return theme.good(f"  ✓ allowed {body.resolution.replace('_', ' ')}{by}")
        case "answer":
            return theme.good(hanging(f"  ✓ answered{by}{text}", columns))
        case "reject":
            return theme.bad(hanging(f"  ✗ rejected{by}{text}", columns))
        case "cancelled":
            return theme.dim("  · withdrawn")


def turn_end_line(body: TurnEnded, theme: Theme, width: int = UNCUT, columns: int = UNCUT) -> str:
    """The outcome of a turn, and its figures.

    Figures that do not fit into `width` are left out. The line is broken at `columns`, between
    figures.
    """
    outcome = f"■ {body.outcome.replace('_', ' ')}"
    figures = [
        counted(body.steps, "step"),
        tokens_line(body.usage),
        "" if body.cost is None else dollars(body.cost),
        files_changed(len(body.files), more=body.more_files) if body.files else "",
        context_line(body),
        branch_line(body),
        seconds(body.duration_s),
    ]
    for least in (5, 4, 1, 2, 0, 3):
        if cells(_figures(outcome, figures)) > width:
            figures[least] = ""
    painted = theme.good if body.outcome == "completed" else theme.bad
    text = _figures(outcome, figures, columns)
    return painted(outcome) + theme.dim(text.removeprefix(outcome))


def turn_end(turn: Mark | None, theme: Theme, columns: int) -> Iterator[str]:
    """The outcome of a turn that did not complete, and the reason."""
    if turn is None or turn.outcome in (None, "completed"):
        return
    if turn.error:
        yield theme.bad(sentence("✗ ", turn.error.message, columns))
    yield theme.bad(f"■ {turn.outcome.replace('_', ' ')}")


def completed_line(turn: Mark, snapshot: Snapshot, theme: Theme) -> str:
    """What is left to say of a completed turn when its session is opened later."""
    figures = [
        context_line(snapshot),
        branch_line(snapshot),
        "" if turn.duration_s is None else seconds(turn.duration_s),
    ]
    return theme.good("■ completed") + theme.dim(_figures("", figures))


def _figures(outcome: str, figures: list[str], columns: int = UNCUT) -> str:
    """The outcome and the figures, in lines broken between figures."""
    lines = [outcome]
    for figure in figures:
        if figure and cells(lines[-1]) + cells(f" · {figure}") > columns:
            lines.append(INDENT + figure)
        elif figure:
            lines[-1] += f" · {figure}"
    return "\n".join(lines)


def no_model() -> str:
    """What is said where a model is needed but none can be used."""
    advice = f"to set one up: {program()} init; for a demo without one: tiller demo"
    return f"no model can be used now; {advice}"


def model_problem(catalog: CatalogResult, settings: Settings) -> str:
    """Why the next turn of a session would have no model, as far as the catalog tells."""
    models = {one.name: one.model for one in catalog.agents}
    chosen = settings.model or models.get(settings.agent or next(iter(models), ""))
    for one in catalog.models:
        if one.name == chosen or (one.default and not chosen):
            return f"model {one.name} can't be used: {one.problem}" if one.problem else ""
    return "" if chosen else no_model()


def tokens_line(usage: Usage) -> str:
    """The tokens sent and received; empty if the provider did not count them."""
    if usage == Usage():
        return ""
    return f"{count(usage.input_tokens)} in, {count(usage.output_tokens)} out"


def context_line(of: TurnEnded | Snapshot | SessionSummary) -> str:
    """The used part of the model's context window, in percent; empty if unknown."""
    if not of.context_tokens or not of.context_window:
        return ""
    return f"context {100 * of.context_tokens / of.context_window:.0f} %"


def state_word(session: SessionSummary) -> str:
    """What a session does now; if it is idle but its last turn did not complete, how that ended."""
    outcome = session.last_outcome
    if session.status in ("busy", "retry"):
        return "working"
    if session.status != "idle" or outcome in (None, "completed"):
        return session.status
    return "limit" if outcome == "limit_reached" else outcome


def branch_line(of: TurnEnded | Snapshot | SessionSummary) -> str:
    """The branch or commit that was checked out at the end of the latest turn."""
    return cut(one_line(of.branch), BRANCH_COLUMNS)


def fork_line(of: Snapshot | SessionSummary) -> str:
    """The session from which a fork was made, and the place; empty for other sessions."""
    if not of.parent_id:
        return ""
    return f"fork of {of.parent_id[-SHORT_ID_CHARS:]} at turn {of.parent_turns}"


def files_changed(files: int, *, more: bool) -> str:
    """How many files changed; `more`: there may be more than these."""
    return f"{'at least ' if more else ''}{counted(files, 'file')} changed"
