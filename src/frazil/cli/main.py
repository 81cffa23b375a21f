"""The entry point. It imports the command line, which takes a second: Ctrl-C prints no stack trace then either."""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    try:
        from frazil.cli.command_line import run  # noqa: PLC0415  (see above)

        return run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
