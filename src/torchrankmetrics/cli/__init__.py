"""The command line: ``torchrankmetrics report | compare | study | verify | adjust | datasets | candidates | audit``."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    The code is 0; 1 if a check failed (``audit``, ``verify``, ``--fail-if``, ``--fail-under``); 2 for invalid input,
    with one line on stderr; or 130 for Ctrl-C.
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
