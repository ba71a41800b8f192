"""A result that is too long for a model: its ends, and a file with the whole of it."""

import hashlib
import re
from pathlib import Path

from tiller_daemon.processes.capture import Capture
from tiller_daemon.redaction.byte_stream import SECRET_PLACEHOLDER
from tiller_daemon.tools.base import ToolEnvironment
from tiller_daemon.tools.output import cut_parts, fits


async def cut_to_fit(text: str, environment: ToolEnvironment) -> tuple[str, str]:
    """Return the text as a model gets it, and the file with the whole if it was cut."""
    if fits(text):
        return text, ""
    for secret in environment.secrets:
        text = text.replace(secret, SECRET_PLACEHOLDER)
    capture = Capture(spill_path(environment))
    try:
        await capture.add(text.encode(errors="replace"))
        return await shown_to_model(capture), capture.spill_path()
    finally:
        capture.close()


async def shown_to_model(capture: Capture) -> str:
    """The captured output as a model gets it; what is too long for that is kept whole in a file."""
    kept = capture.result()
    if not kept.tail and fits(kept.head):
        return kept.head
    await capture.spill()
    kept = capture.result()
    return cut_parts(
        kept.head, kept.tail, lines=kept.lines, size_bytes=kept.size_bytes, where=kept.where
    )


def spill_path(environment: ToolEnvironment) -> Path:
    """The file for the whole of what a call says."""
    # A call's id comes from the provider: as a name of a file it must not lead anywhere else.
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", environment.call_id)[:64]
    digest = hashlib.sha256(environment.call_id.encode(errors="replace")).hexdigest()[:8]
    return environment.spill_directory / f"{safe}-{digest}.txt"
