"""The whole daemon with a real model, over each wire: streamed, counted, interrupted, resumed."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from support.peers import Llama
from tiller_protocol.events import ItemDelta, StepEnded
from tiller_protocol.ops import Interrupt
from tiller_protocol.settings import TurnOverrides

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

ENDINGS = ("completed", "limit_reached")
"""How a turn may end; the model rarely ends its answer by itself."""

LIMITS = {
    "openai_chat": "max_tokens",
    "openai_responses": "max_output_tokens",
    "anthropic_messages": "max_tokens",
}
"""Each wire's name for the limit on output tokens."""


@pytest.mark.parametrize("api", ["openai_chat", "openai_responses", "anthropic_messages"])
async def test_a_session_with_a_real_model_goes_on_after_an_interrupt_and_a_restart(
    llama: Llama,
    new_daemon: Callable[..., Daemon],
    nursery: trio.Nursery,
    workspace: Path,
    api: str,
) -> None:
    daemon = new_daemon(
        f'{CONFIG}[providers.real]\napi = "{api}"\nbase_url = "{llama.base_url}"\n'
        f'[models."real/{llama.model}"]\ncontext_window = 8192\nmax_output = 200\n'
    )
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    model = f"real/{llama.model}"
    # The model has a small context, which tools would fill.
    briefly = TurnOverrides(tools=(), options={LIMITS[api]: 40})
    session_id = await frontend.session(workspace, model=model)
    await frontend.say(session_id, "Count from one to one hundred.", overrides=briefly)
    await frontend.until(session_id, lambda event: isinstance(event.body, ItemDelta))
    await frontend.must(Interrupt(session_id))
    assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
    await frontend.say(session_id, "Now say hello.", overrides=briefly)
    answered = await frontend.turn_ended(session_id, 2)
    assert answered.outcome in ENDINGS
    assert answered.usage.input_tokens > 0
    assert answered.usage.output_tokens > 0
    await frontend.close()
    daemon.restart()
    frontend = await Frontend.connect(daemon, nursery)
    frontend.follow(session_id)
    await frontend.say(session_id, "And goodbye.", overrides=briefly)
    assert (await frontend.turn_ended(session_id, 3)).outcome in ENDINGS
    ended = [e for e in frontend.events(session_id) if isinstance(e.body, StepEnded)]
    first_steps = {e.turn_id: e.body for e in reversed(ended) if isinstance(e.body, StepEnded)}
    last, before, *_ = first_steps.values()
    assert last.usage.input_tokens > before.usage.input_tokens
    await frontend.close()
