"""All cases that another library also computes: ranks of all forms of input; evaluation steps.

python -m benchmarks [--full] [--threads N] [--json PATH]
"""

from benchmarks import ranking, steps
from benchmarks.timing import arguments, report

given = arguments((__doc__ or "").splitlines()[0])
report(ranking.rows(given.full) + steps.rows(given.full), given.json)
