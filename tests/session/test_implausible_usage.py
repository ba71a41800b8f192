"""Token counts that no response can have are unknown, and harm neither session nor totals."""

import pytest

from tiller_daemon.models.base import TOKENS_MAX
from tiller_daemon.models.scripted import ScriptedUsage, ScriptStep, TextPart
from tiller_protocol.items import Usage
from tiller_protocol.ops import SessionGet


@pytest.mark.parametrize(
    ("reported", "counted"),
    [
        (ScriptedUsage(TOKENS_MAX, 0, 7), Usage(TOKENS_MAX, 0, 7)),
        (ScriptedUsage(2**63, TOKENS_MAX + 1, 10**30), Usage()),
        (ScriptedUsage(-5, -(2**63), 7, -1, -1), Usage(0, 0, 7)),
    ],
)
async def test_a_turn_survives_any_counts_and_its_totals_stay_in_range(
    autojump_clock, start, reported, counted
):
    step = ScriptStep(parts=(TextPart("hello"),), usage=reported)
    world, session_id = await start(step)
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.last_message, ended.usage) == ("completed", "hello", counted)
    assert (await world.must(SessionGet(session_id))).snapshot.usage == counted
