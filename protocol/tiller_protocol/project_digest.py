"""The digest of a project's files: what the user saw is what the daemon trusts. Pure."""

import hashlib
import os
from collections.abc import Mapping


def digest_of(contents: Mapping[str, bytes]) -> str:
    """Return the digest of files, by their paths in the workspace, in the order of the daemon.

    The content of a link is its target and a NUL, followed by the content of the target.
    """
    whole = hashlib.sha256()
    for name, content in contents.items():
        # Because of the lengths, moving bytes from one part to the next changes the digest.
        for part in (os.fsencode(name), content):
            whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()
