"""All benchmarks of speed, in one table and one JSON file.

python -m benchmarks [--full] [--threads N [N ...]] [--data FOLDER] [--json PATH]

Results are compared before the clock starts: a benchmark of unequal results fails. FOLDER (see full_evaluation.py) is
used with --full; without it the whole evaluation is that of Kinships, which comes with pykeen.
"""

import argparse
import importlib.util
from pathlib import Path

import torch
from benchmarks import counting, epoch, scale
from benchmarks.timing import report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the sizes of the published graphs: half an hour")
    parser.add_argument("--threads", type=int, nargs="+", default=[torch.get_num_threads()])
    parser.add_argument("--data", type=Path, help="folder of train.tsv, valid.tsv and test.tsv, integer ids")
    parser.add_argument("--json", type=Path, help="write the results there")
    given = parser.parse_args()
    rows = []
    for threads in given.threads:
        torch.set_num_threads(threads)
        rows += counting.rows(given.full) + epoch.rows(given.full) + scale.rows(given.full)
        if importlib.util.find_spec("pykeen") is not None:
            from benchmarks import full_evaluation

            rows += full_evaluation.rows(given.full, given.data if given.full else None)
    report(rows, given.json)


if __name__ == "__main__":
    main()
