"""The command line ``epo``, as a console script and as ``python -m epo``."""

from __future__ import annotations

import signal
import sys

from . import _epo


def main() -> None:
    """Runs the command and ends the process with its exit code."""
    # the command handles signals itself; Python would only act on them after it has returned
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_epo.main([sys.executable, "-m", "epo"], ["epo", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
