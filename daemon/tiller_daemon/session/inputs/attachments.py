"""Prepares an input's attachments: images and PDF documents for models, and references to files.

The model gets only the path of a file, and reads what it needs with the tool `read`, as the rules
allow. So it sees the file as it is at that moment. No file is read here.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tiller_daemon.errors import RejectionError
from tiller_daemon.files.documents import DocumentProblem, fit_document, is_pdf
from tiller_daemon.files.images import ImageProblem, fit_image
from tiller_daemon.files.paths import (
    Location,
    PathProblem,
    explain,
    locate,
    require_regular,
)
from tiller_daemon.policy.rules import decide
from tiller_daemon.session.context.project_trust import configuration_for
from tiller_daemon.session.context.read_access import session_rules
from tiller_daemon.session.inputs.validation import check_input, input_data
from tiller_daemon.session.services import ChosenModel, Services
from tiller_daemon.session.sub_agents.agents import DEFAULT_AGENT, find_agent
from tiller_daemon.tools.path_access import file_requirements
from tiller_daemon.tools.suggestions import did_you_mean_path
from tiller_protocol.codec import INPUT_BYTES_MAX
from tiller_protocol.errors import RejectionCode
from tiller_protocol.events import AnyBody, ItemCompleted, WarningRaised
from tiller_protocol.items import Image, UserMessage
from tiller_protocol.ops import UserInput
from tiller_protocol.snapshot import Snapshot

IMAGES_MAX = 20
"""Maximum number of images per input. With more images, Anthropic lowers its size limit."""

FILES_MAX = 100
"""Maximum number of files per input. For more files, name their directory."""


async def fit_images(op: UserInput, variables: Mapping[str, str]) -> tuple[Image, ...]:
    """Return the images and documents of `op` as models get them, whatever type they declare.

    This takes up to a second per image, and up to `CONVERT_S` per document, in a process with the
    environment `variables`. Raises `RejectionError`, which returns the input in its `data`.
    """
    if not op.images:
        return ()
    # Checked again when the op is handled; here it keeps huge input away from the decoder.
    check_input(op)
    if len(op.images) > IMAGES_MAX:
        message = f"The input has {len(op.images)} images; at most {IMAGES_MAX} are allowed."
        raise _rejected(op, "too_large", message)
    fitted: list[Image] = []
    for number, image in enumerate(op.images, start=1):
        try:
            if is_pdf(image.data):
                fitted.append(await fit_document(image.data, variables))
            else:
                fitted.append((await fit_image(image.data)).image)
        except (ImageProblem, DocumentProblem) as problem:
            kind = "document" if isinstance(problem, DocumentProblem) else "image"
            several = f"{kind.capitalize()} {number} of {len(op.images)}"
            which = several if len(op.images) > 1 else f"The {kind}"
            raise _rejected(op, "bad_message", f"{which} can't be used. {problem}") from None
    return tuple(fitted)


def check_image_sizes(op: UserInput, images: Sequence[Image]) -> None:
    """Raise `RejectionError` if the input's converted `images` are too large for the log."""
    size = sum(len(image.data) + len(image.text) for image in images)
    if size > INPUT_BYTES_MAX:
        message = f"The images total {size:,} bytes; at most {INPUT_BYTES_MAX:,} are allowed."
        raise _rejected(op, "too_large", message)


def check_image_support(op: UserInput, images: Sequence[Image], model: ChosenModel) -> None:
    """Raise `RejectionError` if the input has `images` that the model does not accept."""
    if not model.accepts.images and any(not image.is_document for image in images):
        message = f"The model {model.name} takes no images. Remove them, or choose another model."
        raise _rejected(op, "invalid_settings", message)


def left_out(bodies: Iterable[AnyBody], model: ChosenModel) -> Iterator[WarningRaised]:
    """Yield warnings about attachments of the inputs in these events that the model does not get.

    Queued input was accepted before it was known which model would get it, so its images can no
    longer be rejected.
    """
    for body in bodies:
        if isinstance(body, ItemCompleted) and isinstance(body.item, UserMessage):
            yield from _left_out_of(body.item, model)


def _left_out_of(message: UserMessage, model: ChosenModel) -> Iterator[WarningRaised]:
    documents = [image for image in message.images if image.is_document]
    images = len(message.images) - len(documents)
    if images and not model.accepts.images:
        some = "an image" if images == 1 else f"{images} images"
        text = (
            f"The model {model.name} takes no images. It got the queued input without {some}. "
            "Choose another model, then send the input again."
        )
        yield WarningRaised("images_left_out", text)
    if documents and not model.accepts.documents:
        scans = sum(not document.text for document in documents)
        some = "a PDF document" if len(documents) == 1 else f"{len(documents)} PDF documents"
        text = f"The model {model.name} takes no documents, so it got the text of {some}."
        if scans:
            text += f" {scans} of {len(documents)} had no text, as is usual for scans."
        yield WarningRaised("documents_as_text", text)


def file_references(services: Services, snapshot: Snapshot, op: UserInput) -> tuple[str, ...]:
    """Return the paths of the files in `op`, relative to the workspace if possible.

    Raises `RejectionError` for a file that does not exist or that the rules deny. If the rules ask
    about a file, the user is asked when the model reads the file.
    """
    if len(op.files) > FILES_MAX:
        message = f"The input refers to {len(op.files)} files; at most {FILES_MAX} are allowed."
        raise _rejected(op, "too_large", message)
    return tuple(_reference(services, snapshot, op, path) for path in op.files)


def _reference(services: Services, snapshot: Snapshot, op: UserInput, path: str) -> str:
    try:
        location = locate(Path(snapshot.workspace), path)
        if not _exists(location):
            message = f"There is no file {location.text}.{did_you_mean_path(location)}"
            raise _rejected(op, "not_found", message)
    except PathProblem as problem:
        raise _rejected(op, "bad_message", str(problem)) from None
    settings, configuration = snapshot.settings, configuration_for(services, snapshot.workspace)
    name = op.overrides.agent or settings.agent or DEFAULT_AGENT
    agent = find_agent(services, snapshot.workspace, name)
    rules = session_rules(services, snapshot, agent)
    approve = op.overrides.approve or settings.approve or configuration.approve
    verdict = decide(file_requirements("read", location, title=""), rules, approve)
    if verdict.action == "deny":
        message = f"The model may not read {location.text}: {verdict.reason}"
        raise _rejected(op, "bad_message", message)
    return location.text


def _exists(location: Location) -> bool:
    """Whether the file or directory exists; raises `PathProblem` if it can't be read at all."""
    try:
        status = os.lstat(location.path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise explain(error, location) from error
    if not stat.S_ISDIR(status.st_mode):
        require_regular(status, location)
    return True


def _rejected(op: UserInput, code: RejectionCode, message: str) -> RejectionError:
    return RejectionError(code, message, input_data(op))
