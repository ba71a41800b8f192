"""The user's own command over real sockets and with a real shell."""

from pathlib import Path

from e2e.gates import Gate
from e2e.words import text
from support.frontend import Frontend
from tiller_protocol.items import Notice
from tiller_protocol.ops import Interrupt, Shell


async def test_a_command_of_the_user_runs_unasked_and_the_model_is_told(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, text("I see"))
    await frontend.must(Shell(session_id, "touch made; echo done; exit 3"))
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.steps) == ("completed", 0)
    assert (workspace / "made").exists()
    (call,) = frontend.completed_calls(session_id)
    assert (call.by_user, call.exit_status, call.output) == (True, 3, "done\n[Exit status 3.]")
    await frontend.say(session_id, "what now?")
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    (request,) = frontend.requests(session_id)
    (notice,) = [item for item in request.items if isinstance(item, Notice)]
    assert "touch made; echo done; exit 3" in notice.text
    assert "[Exit status 3.]" in notice.text


async def test_an_interrupt_ends_the_users_own_command_and_leaves_no_process(
    frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, text("I see"))
    await frontend.must(Shell(session_id, f"(setsid sleep 300 &); {gate.command}; touch after"))
    await gate.reached()
    await frontend.must(Interrupt(session_id))
    assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
    assert not (workspace / "after").exists()
