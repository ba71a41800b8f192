"""`tillerd`: isolates itself, imports the program, which takes most of a start, and runs it.

`tillerd VERB` is `tiller VERB`, as `uvx tillerd` runs only the program with the package's name.
"""

import gc
import os
import sys

from tiller_daemon.isolation import isolate
from tiller_daemon.unused_modules import without_unused


def main() -> None:
    """Run the daemon and exit with its status, or with a verb, become the client."""
    # The daemon itself has options only.
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        client = (sys.executable, "-P", "-m", "tiller_client", *sys.argv[1:])
        os.execv(sys.executable, client)  # noqa: S606 - no shell is wanted
    isolate()
    # Imported objects stay, so collecting garbage would waste a tenth of the start.
    gc.disable()
    with without_unused():
        from tiller_daemon.program import run
    gc.freeze()
    gc.enable()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
