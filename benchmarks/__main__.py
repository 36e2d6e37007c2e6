"""Every case in which another library does the same work: ranks of all forms of input, and the steps of an evaluation.

python -m benchmarks [--full] [--threads N] [--json PATH]
"""

from benchmarks import ranking, steps
from benchmarks.timing import arguments, report

given = arguments((__doc__ or "").splitlines()[0])
report(ranking.rows(given.full) + steps.rows(given.full), given.json)
