"""The command line: ``torchrankmetrics report | compare | study | verify | adjust | datasets | candidates | audit``."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code.

    It is 0, 1 if ``audit`` finds a broken law or ``verify`` a difference, 2 with one line on stderr for input that is
    wrong, or 130 for Ctrl-C.
    """
    try:
        from torchrankmetrics.cli.app import run

        return run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print("error: the command line needs typer and rich: pip install 'torchrankmetrics[cli]'", file=sys.stderr)
        return 2
