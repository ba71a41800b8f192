"""`tiller exec` with a real model in llama.cpp's own server."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.peers.home import Home, bodies, check_whole
from support.peers import Llama
from tiller_protocol.events import ItemCompleted, ItemDelta, TurnEnded
from tiller_protocol.items import AssistantMessage

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

CONFIG = """\
model = "llama/smollm2"

[providers.llama]
api = "{api}"
base_url = "{url}"

[models."llama/smollm2"]
context_window = 8192
max_output = {tokens}
"""

wires = pytest.mark.parametrize("api", ["openai_chat", "openai_responses", "anthropic_messages"])

TOKENS = 24
TOKENS_ENDLESS = 3000
ENDLESS = "Count from 1 to 1000 in words."
"""A prompt whose answer is still streaming when the interrupt arrives."""


@wires
def test_a_real_answer_streams_and_its_usage_is_reported(
    new_home: Callable[..., Home], llama: Llama, workspace: Path, api: str
) -> None:
    home = new_home(CONFIG.format(api=api, url=llama.base_url, tokens=TOKENS))
    said = home.tiller("exec", "-C", str(workspace), "--json", "Say hello.")
    # The model rarely ends its answer by itself; if it does not, it is asked twice to continue.
    assert said.status in (0, 4), said
    check_whole(said.events)
    (end,) = bodies(said.events, TurnEnded)
    assert end.usage.input_tokens > 100, "the tools alone take more"
    assert 0 < end.usage.output_tokens <= TOKENS * end.steps
    deltas = "".join(body.delta for body in bodies(said.events, ItemDelta))
    items = [body.item for body in bodies(said.events, ItemCompleted)]
    parts = [item.text for item in items if isinstance(item, AssistantMessage)]
    assert "".join(parts) == deltas
    shown = " ".join(home.tiller("show").out.split())
    assert all(" ".join(part.split()) in shown for part in parts)


@wires
def test_an_interrupt_from_elsewhere_ends_a_real_stream_and_the_session_goes_on(
    new_home: Callable[..., Home], llama: Llama, workspace: Path, api: str
) -> None:
    """B28, G4. The server is stopped in mid-stream, so that the stream can't end by itself."""
    home = new_home(CONFIG.format(api=api, url=llama.base_url, tokens=TOKENS_ENDLESS))
    home.directory = workspace
    turn = home.start("exec", "-C", str(workspace), "--json", ENDLESS)
    turn.until('"item_delta"')
    try:
        os.kill(llama.pid, signal.SIGSTOP)
        assert home.tiller("interrupt", "last").status == 0
        said = turn.ended()
    finally:
        os.kill(llama.pid, signal.SIGCONT)
    assert said.status == 130
    check_whole(said.events)
    (end,) = bodies(said.events, TurnEnded)
    assert end.outcome == "interrupted"
    items = [body.item for body in bodies(said.events, ItemCompleted)]
    (partial,) = [item for item in items if isinstance(item, AssistantMessage)]
    assert (partial.state, bool(partial.text)) == ("interrupted", True)

    again = home.start("exec", "-C", str(workspace), "--json", "--session", "last", ENDLESS)
    again.until('"item_delta"')
    again.process.send_signal(signal.SIGINT)
    assert again.ended().status == 130
    check_whole(home.tiller("log", "--json").events)
