"""Results that are too long for a model: truncated, with the complete text in a spill file."""

import hashlib
import re
from pathlib import Path

from tiller_daemon.processes.capture import Capture
from tiller_daemon.redaction.byte_stream import without_secrets
from tiller_daemon.tools.base import ToolEnvironment
from tiller_daemon.tools.truncation import fits, truncate_parts


async def truncate_to_fit(text: str, environment: ToolEnvironment) -> tuple[str, str]:
    """Return the text for a model, and the path of the spill file; empty if nothing was cut."""
    if fits(text):
        return text, ""
    capture = Capture(spill_path(environment))
    try:
        shown = without_secrets(text, environment.secrets)
        await capture.add(shown.encode(errors="replace"))
        return await truncated_output(capture), capture.spill_path()
    finally:
        capture.close()


async def truncated_output(capture: Capture) -> str:
    """Return captured output for a model; if it is too long, the spill file gets all of it."""
    captured = capture.result()
    if not captured.tail and fits(captured.head):
        return captured.head
    await capture.spill()
    captured = capture.result()
    return truncate_parts(
        captured.head,
        captured.tail,
        lines=captured.lines,
        size_bytes=captured.size_bytes,
        where=captured.where,
    )


def spill_path(environment: ToolEnvironment) -> Path:
    """Return the file for the complete output of a call."""
    # The id of a call comes from the provider, so it must not be able to name another directory.
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", environment.call_id)[:64]
    digest = hashlib.sha256(environment.call_id.encode(errors="replace")).hexdigest()[:8]
    return environment.files.spill_directory / f"{safe}-{digest}.txt"
