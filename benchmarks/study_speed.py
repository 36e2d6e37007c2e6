"""How long a study takes: reading, a table of MRR and hits@10, averages over data sets, and the page with its figures.

    python -m benchmarks.study_speed [--pattern "FOLDER/{dataset}.{model}.npz"] [--rows 1000000] [--json PATH]

With a pattern its files; and 5 models x 3 seeds x 4 data sets of simulated ranks, as many rows in all. Last, the
breakdown of one table of so many tasks, each a group of its own, by MRR, MR and hits@10 in three views. Seconds of the
processor, one thread; where nothing else runs that is the time one waits.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.pages import parser_of, write_json

from torchrankmetrics import Ranks, RankTable
from torchrankmetrics.study import RankStudy

SHARES = {"d1": 0.02, "d2": 0.08, "d3": 0.2, "d4": 0.7}  # of the rows: graphs differ in size


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--pattern")
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if given.pattern:
            rows.append({"study": "files"} | timed(given.pattern, Path(folder)))
        pattern = f"{folder}/{{dataset}}/{{model}}/{{seed}}.npz"
        simulated(given.rows).save(pattern)
        rows.append({"study": "simulated"} | timed(pattern, Path(folder)))
    rows.append({"study": "groups", "tables": 1, "rows": given.rows, "breakdown": grouped(given.rows)})
    for row in rows:
        print(row)
    write_json(given.json, {"rows": rows})


def simulated(rows: int) -> RankStudy:
    """Ranks of 15 runs on four data sets of up to 14,541 candidates."""
    study, rng = RankStudy(), np.random.default_rng(0)
    for dataset, share in SHARES.items():
        size = int(rows * share / 15)
        candidates = rng.integers(10_000, 14_541, size)
        for model in range(5):
            for seed in range(3):
                ranks = Ranks(1 + np.floor(rng.random(size) ** 4 * candidates).astype(np.int64), None, candidates)
                table = RankTable.from_ranks(ranks, group=torch.arange(size) % 200, sample_id=torch.arange(size))
                study.add(table, model=f"m{model}", dataset=dataset, seed=seed)
    return study


def timed(pattern: str, folder: Path) -> dict[str, Any]:
    """Seconds of each step, the first with what it has to read."""
    study = RankStudy.open(pattern)
    row: dict[str, Any] = {"tables": len(study), "rows": sum(run.num_rows for run in study.runs.values())}
    steps: dict[str, Callable[[], Any]] = {
        "table": lambda: study.table(["mrr", "hits@10"]),
        "summary": study.summary,
        "page": lambda: study.report(folder / "report.html"),
    }
    for name, step in steps.items():
        start = time.process_time()
        step()
        row[name] = round(time.process_time() - start, 2)
    return row


def grouped(rows: int) -> float:
    """Seconds of the breakdown of a table whose tasks are groups of their own."""
    rng = np.random.default_rng(1)
    candidates = rng.integers(10_000, 14_541, rows)
    ranks = Ranks(1 + np.floor(rng.random(rows) ** 4 * candidates).astype(np.int64), None, candidates)
    table = RankTable.from_ranks(ranks, group=torch.from_numpy(rng.permutation(rows)), sample_id=torch.arange(rows))
    start = time.process_time()
    assert len(table.breakdown(["mrr", "mr", "hits@10"])) == rows
    return round(time.process_time() - start, 2)


if __name__ == "__main__":
    main()
