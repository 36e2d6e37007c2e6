"""All benchmarks of speed: one table each, and one JSON file each.

python -m benchmarks [--full] [--threads N [N ...]] [--data FOLDER] [--tasks N] [--results FOLDER]

Results are compared before the clock starts: a benchmark of unequal results fails. The data (see full_evaluation.py)
are used with --full; without it the whole evaluation is that of Kinships, which comes with pykeen.
"""

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks import ranking, scale, steps
from benchmarks.timing import report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the sizes of the published graphs: half an hour")
    parser.add_argument("--threads", type=int, nargs="+", default=[torch.get_num_threads()])
    parser.add_argument("--data", type=Path, help="folder of train.tsv, valid.tsv and test.tsv, integer ids")
    parser.add_argument("--tasks", type=int, help="so many of the test triples, drawn at random, instead of all")
    parser.add_argument("--results", type=Path, help="write the JSON files there; docs/ shows benchmarks/results")
    given = parser.parse_args()
    runs: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "steps": lambda: steps.rows(given.full),
        "ranking": lambda: ranking.rows(given.full),
        "scale": lambda: scale.rows(given.full),
    }
    if importlib.util.find_spec("pykeen") is not None:
        from benchmarks import full_evaluation

        runs["full_evaluation"] = lambda: full_evaluation.rows(
            given.full, given.data if given.full else None, given.tasks
        )
    for name, run in runs.items():
        rows = []
        for threads in given.threads:
            torch.set_num_threads(threads)
            rows += run()
        report(rows, given.results / f"{name}.json" if given.results else None)


if __name__ == "__main__":
    main()
