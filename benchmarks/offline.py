"""100M ranks in files: one process with bounded memory, and two workers of Dask that merge their counts in a tree.

    pip install "dask[bag]" pyarrow
    python -m benchmarks.offline [--full] [--workers N] [--folder FOLDER] [--json PATH]
    python -m benchmarks.offline --report

The ranks are made up, log-uniform among 20 numbers of candidates around 14,500: Parquet files of a million each, 100
with ``--full``, else 4; FOLDER is where they stand while it runs. A process for each way; "peak" is the largest
resident size of any process, Python and torch included. The rows of 100M ranks, 72 bytes each, would take 6.7 GiB.
"""

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.timing import machine

from torchrankmetrics import RankCollection, RankTable, evaluate

RESULTS = Path(__file__).parent / "results" / "offline.json"
METRICS = ["mr", "mrr", "hits@10", "amri", "adjusted_mrr", "z_mrr", "gmr", "median_rank"]
IN_FILE = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--report", action="store_true", help="run nothing, print the table of the committed results")
    given = parser.parse_args()
    if given.report:
        print(table(json.loads(RESULTS.read_text())))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        paths = [write(Path(folder) / f"part-{i}.parquet", i) for i in range(100 if given.full else 4)]
        found = [run_alone(way, paths, given.workers) for way in (one_process, with_dask)]
    assert found[0].pop("values") == found[1].pop("values"), "Dask's values are others"
    about = machine() | {"ranks": len(paths) * IN_FILE, "load": round(os.getloadavg()[0], 1)}
    results = {"machine": about, "rows": found}
    print(table(results))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


def table(results: dict[str, Any]) -> str:
    lines = ["| way | time (s) | processor (s) | peak (GiB) | rows at the end |", "|---|---|---|---|---|"]
    for row in results["rows"]:
        numbers = f"{row['s']:.1f} | {row['cpu_s']:.1f} | {row['peak_gib']:.2f} | {row['distinct']:,}"
        lines.append(f"| {row['way']} | {numbers} |")
    return "\n".join(lines)


def write(path: Path, seed: int) -> Path:
    random = np.random.default_rng(seed)
    num_candidates = random.integers(14_500, 14_520, IN_FILE)
    ranks = np.exp(random.random(IN_FILE) * np.log(num_candidates)).astype(np.int64)
    RankTable.from_numpy({"optimistic": ranks, "num_candidates": num_candidates, "side": 2}).to_parquet(path)
    return path


def run_alone(way: Any, paths: list[Path], workers: int) -> dict[str, Any]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, way, paths, workers).result()


def _measured(way: Any, paths: list[Path], workers: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    before = time.perf_counter()
    row = way(paths, workers)
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    unit = 1 if sys.platform == "darwin" else 1024
    row |= {"s": time.perf_counter() - before, "cpu_s": sum(each.ru_utime + each.ru_stime for each in usage)}
    return row | {"peak_gib": max(each.ru_maxrss for each in usage) * unit / (1 << 30)}


def one_process(paths: list[Path], workers: int) -> dict[str, Any]:
    collection = RankCollection(METRICS, storage="counts")
    for path in paths:
        collection.update(RankTable.from_parquet(path))
    values = {key: value.item() for key, value in collection.compute().items()}
    return {"way": 'one process, `storage="counts"`', "values": values, "distinct": len(collection.table())}


def with_dask(paths: list[Path], workers: int) -> dict[str, Any]:
    import dask.bag

    ranked = dask.bag.from_sequence(paths, npartitions=len(paths)).map(RankTable.from_parquet)
    tree = ranked.reduction(merged, merged, split_every=4)
    whole = tree.compute(scheduler="processes", num_workers=workers)
    return {"way": f"Dask, {workers} processes", "values": evaluate(whole, metrics=METRICS), "distinct": len(whole)}


def merged(tables: Iterable[RankTable]) -> RankTable:
    return RankTable.concatenate(list(tables)).compact()


if __name__ == "__main__":
    main()
