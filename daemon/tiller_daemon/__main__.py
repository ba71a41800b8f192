"""`tillerd`: isolates itself, imports the program, which takes most of a start, and runs it."""

import gc
import sys

from tiller_daemon.isolation import isolate
from tiller_daemon.unused_modules import without_unused


def main() -> None:
    """Run the daemon and exit with its status."""
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
