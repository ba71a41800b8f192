"""Makes a sub-agent's report, for the result of the call that started it or for a later message."""

from tiller_daemon.session.sub_agents.sub_agent_run import SubAgentRun
from tiller_daemon.tools.base import ToolResult
from tiller_daemon.tools.truncation import truncate
from tiller_daemon.turn.decisions import DOOM_LOOP


def report_of(sub_agent_run: SubAgentRun) -> ToolResult:
    """Return the report of a finished run."""
    totals = sub_agent_run.totals
    assert totals is not None
    body = sub_agent_run.ended
    footer = f"[sub-agent {totals.agent}, {totals.session_id}: `resume` it to continue from here]"
    if body is None:
        report = "The sub-agent's session ended because its log could not be written."
    elif body.outcome == "completed":
        report = body.last_message or "The sub-agent ended without a message."
    else:
        reason = f": {body.error.message}" if body.error else "."
        report = f"The sub-agent's turn ended with the outcome `{body.outcome}`{reason}"
        if body.last_message:
            report += f"\nIts last message:\n{body.last_message}"
    failed = body is None or body.outcome != "completed"
    # If the user rejected a call of the sub-agent, this call counts as rejected too and ends the
    # turn, so that the user can say what to do instead.
    # A loop that nobody was asked about is not a rejection by the user.
    looped = body is not None and body.error is not None and body.error.code == DOOM_LOOP
    rejected = body is not None and body.outcome == "blocked" and not looped
    output = "\n\n".join((truncate(report), *filter(None, (sub_agent_run.branch,)), footer))
    return ToolResult(output, failed=failed, rejected=rejected, sub_agent=totals)
