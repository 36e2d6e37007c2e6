"""Where ``report`` and ``compare`` read models from: files of ranks, or qrels and runs."""

import os
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torchrankmetrics as trm
from torchrankmetrics.cli.output import reject
from torchrankmetrics.files import MAX_BYTES

EmptyQueries = Literal["skip", "zero", "error"]
SUFFIXES = (".npz", ".parquet", ".csv", ".tsv")


@dataclass(frozen=True)
class RunOptions:
    """Options that have an effect on runs, and on metrics of queries."""

    num_candidates: int | None
    relevance_threshold: float
    empty_queries: EmptyQueries | None
    ignore_identical_ids: bool


class _Models:
    """Paths of models, and the files of each: one, or one per training run."""

    def __init__(self, paths: list[Path], parts: list[list[Path]]) -> None:
        self.paths = paths
        self.parts = parts

    @property
    def files(self) -> list[Path]:
        """The files of all models."""
        return list(chain(*self.parts))


class RankFiles(_Models):
    """Files of ranks; a directory is a model with one file per training run."""

    default_metric = "mrr"

    def __init__(self, files: list[Path], options: RunOptions, max_bytes: int) -> None:
        reject(
            "without --run",
            num_candidates=options.num_candidates,
            ignore_identical_ids=options.ignore_identical_ids,
        )
        paths = list(map(_input, files))
        super().__init__(paths, list(map(_parts, paths)))
        self.empty_queries = options.empty_queries
        self._max_bytes = max_bytes

    @property
    def default_metrics(self) -> tuple[str, ...]:
        """Metrics of ``report`` if none are requested."""
        from torchrankmetrics.metrics.selection import DEFAULT_METRICS

        return DEFAULT_METRICS

    def read_names(self, names: list[str]) -> list[str]:
        """Return the names of metrics as they are meant for these files."""
        return names

    def load(self, path: Path, measures: Any) -> "trm.RankTable":
        """Load a file."""
        return trm.RankTable.load(path, max_bytes=self._max_bytes)

    def query_values(self, path: Path, measures: Any) -> dict[str, dict[str, float]]:
        """Values of metrics of every query, by query and metric."""
        table = self.load(path, measures)
        found: dict[str, dict[str, float]] = {}
        for measure in measures:
            for query, value in table.query_values(measure).items():
                found.setdefault(str(query), {})[measure.key] = value
        return found


class RunFiles(_Models):
    """Runs and their qrels."""

    default_metric = "ndcg_at_10"

    def __init__(self, qrels: Path, runs: list[Path], options: RunOptions) -> None:
        from torchrankmetrics.integrations.trec import read_qrels

        paths = list(map(_input, runs))
        super().__init__(paths, [[path] for path in paths])
        self.empty_queries: EmptyQueries = options.empty_queries or "zero"
        self._qrels = read_qrels(_input(qrels))
        self._options: dict[str, Any] = {
            "num_candidates": options.num_candidates,
            "ignore_identical_ids": options.ignore_identical_ids or None,
        }

    @property
    def default_metrics(self) -> tuple[str, ...]:
        """Metrics of ``report`` if none are requested."""
        from torchrankmetrics.integrations.trec import DEFAULT_RUN_METRICS

        return DEFAULT_RUN_METRICS

    def read_names(self, names: list[str]) -> list[str]:
        """Return the names of metrics as they are meant for runs, where ``mrr`` means ``rr``."""
        from torchrankmetrics.errors import warn
        from torchrankmetrics.integrations.trec.runs import RR_NOTE, run_metrics

        read, has_mrr = run_metrics(names)
        if has_mrr:
            warn(RR_NOTE)
        return list(read)

    def load(self, path: Path, measures: Any) -> "trm.RankTable":
        """Rank the documents of a run; ValueError for metrics that its lists do not determine."""
        from torchrankmetrics.integrations.trec import evaluate_run, rank_run, read_run

        run = read_run(path)
        empty = self.empty_queries
        evaluate_run(self._qrels, run, measures, empty_queries=empty, **self._options)
        return rank_run(self._qrels, run, **self._options)

    def query_values(self, path: Path, measures: Any) -> dict[str, dict[str, float]]:
        """Values of metrics of every query, by query and metric."""
        from torchrankmetrics.integrations.trec import evaluate_run

        return evaluate_run(
            self._qrels,
            path,
            measures,
            per_query=True,
            empty_queries=self.empty_queries,
            **self._options,
        )


Sources = RankFiles | RunFiles


def open_sources(
    files: list[Path],
    qrels: Path | None,
    runs: list[Path],
    options: RunOptions,
    max_bytes: int,
    cluster: str,
) -> Sources:
    """Read which files are given: ranks, ``QRELS RUN...``, or ``--qrels`` and ``--run``."""
    if qrels is None and not runs and len(files) > 1 and not _may_hold_ranks(files[0]):
        qrels = files[0]
        runs = files[1:]
        files = []
    if (qrels is None) != (not runs):
        raise ValueError("--qrels and --run must be given together")
    if qrels is not None:
        if files:
            raise ValueError("files of ranks would do nothing with --run")
        reject("with runs", cluster=cluster != "auto", max_bytes=max_bytes != MAX_BYTES)
        return RunFiles(qrels, runs, options)
    if not files:
        raise ValueError("files of ranks must be given, or qrels and a run")
    return RankFiles(files, options, max_bytes)


def _may_hold_ranks(path: Path) -> bool:
    """Whether a file may be a table of ranks, by its suffix and its columns; else it has qrels."""
    if path.suffix in (".npz", ".parquet") or not path.is_file():
        return True
    if path.suffix not in SUFFIXES:
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        header = file.readline(10_000).lower()
    return not ("query-id" in header or header.split()[1:2] in (["0"], ["q0"]))


def _input(path: Path) -> Path:
    return Path("/dev/stdin") if str(path) == "-" else path


def _parts(path: Path) -> list[Path]:
    """The files of a model: one, or those of a directory of training runs."""
    from torchrankmetrics.table.files import is_one_table

    if not path.is_dir() or is_one_table(path):
        return [path]
    parts = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES)
    if not parts and any(path.rglob("*.parquet")):
        return [path]  # partitioned: the error has the remedy
    if not parts:
        raise ValueError(f"{path} is a directory without files of ranks ({', '.join(SUFFIXES)})")
    return parts


def displayed(paths: list[Path]) -> list[str]:
    """Write paths for a published table: absolute ones relative to their common directory."""
    parents = [path.parent for path in paths if path.is_absolute()]
    folder = os.path.commonpath(parents) if parents else ""
    names = []
    for path in paths:
        names.append(path.relative_to(folder).as_posix() if path.is_absolute() else str(path))
    return names
