"""``python -m torchrankmetrics``: the command line."""

import sys

from torchrankmetrics.cli import main

if __name__ == "__main__":
    sys.exit(main())
