"""Evaluate scores in the partitions in which an engine wrote them, and merge the tables with Dask.

    python examples/offline_dask.py [--folder FOLDER] [--partitions 6] [--workers 2]

The generated scores are Parquet files with one row per query and candidate and whole queries in
each file, as Spark, Ray or Dask write data that are partitioned by query. Every partition becomes a
table of ranks with counts; the tables are merged in a tree. Needs the extra ``examples``.
"""

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path

import dask.bag
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from torchrankmetrics import RankCollection, RankTable, evaluate
from torchrankmetrics.kg import rank_long_table

CANDIDATES = 200


def write_scores(folder: Path, partitions: int, queries: int = 50) -> list[Path]:
    """Write the scores of some queries in each file: query, candidate, score, true, excluded."""
    paths = []
    for part in range(partitions):
        random = np.random.default_rng(part)
        true = random.integers(CANDIDATES, size=queries)
        query, candidate = np.divmod(np.arange(queries * CANDIDATES), CANDIDATES)
        score = random.normal(size=len(query)) + 1.5 * (candidate == true[query])
        columns = {
            "query": part * queries + query,
            "candidate": candidate,
            "score": score.astype(np.float32),
        }
        columns |= {"true": candidate == true[query], "excluded": random.random(len(query)) < 0.05}
        paths.append(folder / f"part-{part}.parquet")
        pq.write_table(pa.table(columns), paths[-1])
    return paths


def ranks_of(path: Path) -> RankTable:
    """Rank the queries of a partition; a query that is cut or in two partitions is an error."""
    return rank_long_table(
        pq.read_table(path), side="tail", num_rows=CANDIDATES, with_queries=False
    )


def merged(tables: Iterable[RankTable]) -> RankTable:
    """Sum up tables: one row for each distinct row, with its count."""
    return RankTable.concatenate(list(tables)).compact()


def with_dask(paths: list[Path], workers: int) -> RankTable:
    """Rank each file in one of several processes; four tables become one until one is left."""
    ranked = dask.bag.from_sequence(paths, npartitions=len(paths)).map(ranks_of)
    tree = ranked.reduction(merged, merged, split_every=4)
    return tree.compute(scheduler="processes", num_workers=workers)


def main() -> None:
    """Evaluate the files with Dask, then once more in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="for the scores; without: one that is deleted")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        paths = write_scores(given.folder or Path(temporary), given.partitions)
        table = with_dask(paths, given.workers)
        together = evaluate(table, metrics=["mrr", "adjusted_mrr", "hits@10", "z_mrr"])

        alone = RankCollection(["mrr", "adjusted_mrr", "hits@10", "z_mrr"], storage="counts")
        for path in paths:
            alone.update(ranks_of(path))
    print(f"{table.num_tasks} ranks of {len(paths)} files in {len(table)} rows")
    print("  ".join(f"{key} {value:.4f}" for key, value in together.items()))
    print(
        "values equal the values of one process: "
        f"{together == {key: v.item() for key, v in alone.compute().items()}}"
    )


if __name__ == "__main__":
    main()
