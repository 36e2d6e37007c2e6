"""RankStudy: ranks of many models on many datasets with several seeds."""

from __future__ import annotations  # help() shows the names of types

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from torchrankmetrics.definitions.protocol import VIEWS, ValueDefinition, View
from torchrankmetrics.files import natural, write_whole
from torchrankmetrics.inference.intervals import check_confidence_level
from torchrankmetrics.inference.pairing import Values, known_measure, value_measure, value_rows
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.names import MetricLike, Metrics
from torchrankmetrics.metrics.selection import Selection
from torchrankmetrics.plots.canvas import pyplot
from torchrankmetrics.study.across import Averages, averages
from torchrankmetrics.study.cells import DatasetResult, against_random, evaluate_dataset
from torchrankmetrics.study.differences import Differences, differences
from torchrankmetrics.study.mean_ranks import Ranking, ranking
from torchrankmetrics.study.page import AVERAGED, Page
from torchrankmetrics.study.runs import FIELDS, DataSet, Run, find_files, paths_of, source_of
from torchrankmetrics.study.tables import StudyTable, marked_cells
from torchrankmetrics.validation import check_choice, shorten

_MOST_ROWS = 1 << 22  # of datasets in memory: a quarter of a GiB


class RankStudy:
    """Ranks by model, dataset and seed: their tables, figures and page.

    Files are read when they are needed. Tasks of a dataset are aligned by (side, sample id), or by
    order.

    >>> from torchrankmetrics.study import RankStudy
    >>> from torchrankmetrics import Ranks, RankTable
    >>> study = RankStudy()
    >>> for model, ranks in {"a": [1, 2, 1, 4], "b": [3, 2, 5, 4]}.items():
    ...     table = RankTable.from_ranks(Ranks(ranks, None, 9), side="tail")
    ...     study.add(table, model=model, dataset="toy")
    ...
    >>> study
    RankStudy(2 tables: 2 models x 1 datasets)
    """

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str, str], Run] = {}
        self._first: dict[str, list[str]] = {"model": [], "dataset": []}  # names to list first
        self._loaded: dict[str, dict[str, DataSet]] = {}
        self._results: dict[tuple[Hashable, ...], DatasetResult] = {}

    def add(self, table: object, *, model: str, dataset: str, seed: int | str = 0) -> None:
        """Add the ranks of a run.

        Args:
            table (RankTable, path, Ranks, RankCollection): the ranks, also as results of a
                ``RankCollectionEvaluator``.
            model (str): name of the model.
            dataset (str): name of the dataset.
            seed (int or str, 0): seed of the training.

        Raises:
            TypeError, ValueError: if ``table`` contains no ranks, or the study has a run of the
                same names.
        """
        (source, num_rows) = source_of(table)
        file = None
        if isinstance(source, Path):
            file = (
                source.name if source.is_absolute() or ".." in source.parts else source.as_posix()
            )
        self._add(Run(str(model), str(dataset), str(seed), source, file, num_rows))

    def add_values(
        self, values: Values, *, metric: str, model: str, dataset: str, seed: int | str = 0
    ) -> None:
        """Add values of queries that another tool computed.

        They are for tables, averages, differences, and pages without ranks.

        Values of queries are independent units, not clusters, and have no files: ``save`` and
        ``verify`` need ranks.

        Args:
            values (dict): query -> value, of the same queries for all models of the dataset.
            metric (str): name of the metric; higher is better, unless the name is one of the
                package.
            model (str): name of the model.
            dataset (str): name of the dataset, which has no ranks.
            seed (int or str, 0): seed of the training.

        Raises:
            TypeError, ValueError: if a value is not a finite number, the run has values of the
                metric, or the dataset has ranks.

        >>> from torchrankmetrics.study import RankStudy
        >>> study = RankStudy()
        >>> for model, shift in {"bm25": 0.0, "dense": 0.1}.items():
        ...     values = {f"q{i}": i % 5 / 5 + shift for i in range(50)}
        ...     study.add_values(values, metric="ndcg@10", model=model, dataset="scifact")
        ...
        >>> study.table("ndcg@10").value("ndcg_at_10", "dense", "scifact")
        0.5
        """
        run = Run(
            str(model),
            str(dataset),
            str(seed),
            None,
            None,
            len(values),
            {value_measure(metric, ()).key: values},
        )
        value_rows([values], [f"values of {run.label}"])
        self._add(run)

    @classmethod
    def open(cls, pattern: str | os.PathLike[str], **names: str) -> Self:
        """Find the files of a pattern, such as ``runs/{dataset}/{model}/{seed}.npz``.

        Files of Parquet are found, too.

        Args:
            pattern (str): path with the fields {dataset}, {model} and {seed}, matching any text
                without "/"; ``*`` too.
            **names (str): model, dataset or seed for a field that the pattern lacks; default
                "model", "data", "0".

        Returns:
            A study of these files; ValueError if no file matches, or two files are of the same run.
        """
        study = cls()
        default = {"model": "model", "dataset": "data", "seed": "0"} | names
        for name in names:
            check_choice("names", name, FIELDS)
        for path, below, fields in find_files(pattern):
            model, dataset, seed = ((default | fields)[part] for part in FIELDS)
            study._add(Run(model, dataset, seed, path, below, source_of(path)[1]))
        study.arrange(sorted(study.models, key=natural), sorted(study.datasets, key=natural))
        return study

    def arrange(self, models: Sequence[str] = (), datasets: Sequence[str] = ()) -> None:
        """Set the names of models and datasets to list first; the others follow."""
        self._first["model"][:0] = models
        self._first["dataset"][:0] = datasets
        self._loaded.clear()
        self._results.clear()

    def _add(self, run: Run) -> None:
        if not run.num_rows:
            file = f"{run.source}: " * isinstance(run.source, Path)
            raise ValueError(f"{file}the ranks of {run.label} have no ranking tasks")
        key = (run.model, run.dataset, run.seed)
        if known := self.runs.get(key):
            if not known.values or run.values.keys() <= known.values.keys():
                raise ValueError(f"the study has a run of {run.label} already: pass another seed=")
            run = replace(known, values=known.values | run.values)
        if any(
            one.dataset == run.dataset and bool(one.values) != bool(run.values)
            for one in self.runs.values()
        ):
            raise ValueError(
                f"dataset must have ranks or values of queries; {shorten(run.dataset)} has the "
                "other kind"
            )
        self.runs[key] = run
        self._loaded.pop(run.dataset, None)
        self._results = {
            known: value for known, value in self._results.items() if known[0] != run.dataset
        }

    @property
    def models(self) -> list[str]:
        """The models in the order of ``add`` or ``arrange``; of files in natural order."""
        return self._names("model")

    @property
    def datasets(self) -> list[str]:
        """Names of the datasets, in the order in which they were added or arranged."""
        return self._names("dataset")

    def _names(self, field: str) -> list[str]:
        names = dict.fromkeys(getattr(run, field) for run in self.runs.values())
        return [name for name in dict.fromkeys([*self._first[field], *names]) if name in names]

    @property
    def seeds(self) -> list[str]:
        """The seeds of all runs."""
        return sorted({run.seed for run in self.runs.values()}, key=natural)

    @property
    def missing(self) -> list[tuple[str, str]]:
        """Pairs of a model and a dataset without runs."""
        present = {(run.model, run.dataset) for run in self.runs.values()}
        return [
            (model, data)
            for data in self.datasets
            for model in self.models
            if (model, data) not in present
        ]

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        seeds = f" x {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        missing = f", {len(self.missing)} of these missing" if self.missing else ""
        shape = f"{len(self.models)} models x {len(self.datasets)} datasets{seeds}"
        return f"{type(self).__name__}({len(self)} tables: {shape}{missing})"

    def save(self, pattern: str | os.PathLike[str]) -> None:
        """Write every table to a file of a pattern, ``runs/{dataset}/{model}/{seed}.npz``.

        The suffix .parquet is possible, too.

        Raises:
            ValueError: if two runs would have one file, or a name contains "/".
        """
        paths = paths_of(pattern, list(self.runs))
        for (key, run), (path, file) in zip(self.runs.items(), paths, strict=True):
            table = run.load()
            path.parent.mkdir(parents=True, exist_ok=True)
            table.save(path)
            self.runs[key] = replace(run, source=path, file=file)

    def dataset(self, name: str) -> DataSet:
        """Return the runs of a dataset, read and aligned; of values, runs of the first metric."""
        return next(iter(self._parts(name).values()))

    def _parts(self, name: str) -> dict[str, DataSet]:
        """The runs of a dataset by the metric of their values; the metric of ranks is ""."""
        check_choice("dataset", name, self.datasets)
        if name not in self._loaded:
            runs = [run for run in self.runs.values() if run.dataset == name]
            order = self.models.index
            runs.sort(key=lambda run: (order(run.model), natural(run.seed)))
            metrics = dict.fromkeys(metric for run in runs for metric in run.values or [""])
            found = {metric: DataSet(runs, metric) for metric in metrics}
            if (
                sum(
                    run.num_rows
                    for run in self.runs.values()
                    if run.dataset in (name, *self._loaded)
                )
                > _MOST_ROWS
            ):
                self._loaded.clear()
            self._loaded[name] = found
        return self._loaded[name]

    def _part(self, name: str, measure: Measure) -> tuple[DataSet, Measure]:
        """The runs of a dataset with values of a measure, and their own measure."""
        parts = self._parts(name)
        if "" in parts:
            return parts[""], measure
        if (part := parts.get(measure.key)) is None:
            known = f"available: {', '.join(parts)}; other metrics and views need ranks"
            raise ValueError(f"no values of {shorten(measure.key)} were added, {known}")
        return part, value_measure(measure.key, [run.rows for run in part.runs])

    def _measures(self, metrics: Metrics, view: View | None) -> list[Measure]:
        """Read the metrics of a table, also names of given values that are not in the package."""
        check_choice("view", view, (None, *VIEWS))
        foreign = {
            name: Measure(ValueDefinition(name))
            for run in self.runs.values()
            for name in run.values
            if known_measure(name) is None
        }
        if foreign and not isinstance(metrics, Mapping):
            entries: list[Any] = list(metrics) if isinstance(metrics, list | tuple) else [metrics]
            metrics = [foreign.get(one, one) for one in entries]
        measures = list(Selection(view or "base").measures(metrics).values())
        if not measures:
            raise ValueError("metrics is empty: name at least one")
        if wrong := [measure.key for measure in measures if not measure.is_estimate]:
            views = "base, normalized, adjusted_index or z_score"
            raise ValueError(
                f"{wrong[0]!r} has no mean over seeds and datasets: use a metric in view {views}"
            )
        return measures

    def table(
        self,
        metrics: Metrics = "mrr",
        view: View | None = None,
        *,
        confidence_level: float = 0.95,
        cluster: str | None = "auto",
    ) -> StudyTable:
        """Compute models by datasets: means over seeds, intervals, and marks of significance.

        The best value of a dataset is bold; † marks models that are not significantly different
        from it. All pairs of models on all datasets and metrics are one family with error rate 1 -
        confidence_level (Holm's method). ‡ marks values that are not significantly better than
        random ranking. ``to_latex(baseline="TransE")`` marks significant differences from a
        baseline instead; ``stars=True`` prints stars for p ≤ 0.05, 0.01, 0.001.

        Args:
            metrics (str, Measure, RankMetric, or several): metrics of the table.
            view (str, default None): view of names without one: "base", "normalized",
                "adjusted_index" or "z_score".
            confidence_level (float, default 0.95): of the intervals, and 1 - the family-wise error
                rate.
            cluster (str, default "auto"): tasks that are dependent, as in ``compare``: both sides
                of a triple, or the tasks of one query. Or "group", "sample_id", "query"; None: all
                tasks are independent, as values of queries always are.

        Returns:
            A table with one cell per model, dataset and metric; ValueError for an empty study and
            damaged files.
        """
        confidence_level = check_confidence_level(confidence_level)
        measures = self._measures(metrics, view)
        if not self.runs:
            raise ValueError(
                "the study has no runs: add(table, model=, dataset=) some, or open a pattern of "
                "files"
            )
        results = {}
        facts = {}
        warnings = {}
        alpha = 1 - confidence_level
        p_random: dict[str, dict[tuple[str, str, str], float]] = {one.key: {} for one in measures}
        for name in self.datasets:
            for one in measures:
                results[one.key, name] = self._result(name, one, confidence_level, cluster)
                p_random[one.key] |= against_random(*self._part(name, one), alpha / len(self.runs))
            facts[name] = self.dataset(name).facts
            warnings[name] = [
                note for part in self._parts(name).values() for note in part.notes(self.seeds)
            ]
        cells = marked_cells(measures, results, p_random, alpha)
        return StudyTable(
            tuple(measures),
            tuple(self.models),
            tuple(self.datasets),
            cells,
            results,
            facts,
            warnings,
            confidence_level,
            cluster,
        )

    def summary(
        self,
        metrics: Metrics = AVERAGED,
        view: View | None = None,
        *,
        confidence_level: float = 0.95,
        cluster: str | None = "auto",
    ) -> Averages:
        """Average models over datasets of equal weight; arguments as in ``table``.

        A dataset is left out, with a note, if a model has no value there or is on other tasks.

        Returns:
            One ``Average`` per model and metric; ValueError if no dataset remains.
        """
        return averages(
            self.table(metrics, view, confidence_level=confidence_level, cluster=cluster)
        )

    def difference(
        self,
        a: str,
        b: str,
        metric: MetricLike = "mrr",
        view: View | None = None,
        *,
        confidence_level: float = 0.95,
        cluster: str | None = "auto",
    ) -> Differences:
        """Subtract model ``b`` from ``a`` on every dataset, and average; options as in ``table``.

        Returns:
            One difference per dataset, and their mean; ValueError if the two cannot be compared on
            any dataset.
        """
        if check_choice("model", a, self.models) == check_choice("model", b, self.models):
            raise ValueError(f"a and b must be two models, got {a!r} twice")
        (one,) = self._measures([metric], view)
        confidence_level = check_confidence_level(confidence_level)
        results = {
            name: self._result(name, one, confidence_level, cluster) for name in self.datasets
        }
        return differences(a, b, one, results, confidence_level)

    def mean_ranks(
        self,
        metric: MetricLike = "mrr",
        view: View | None = None,
        *,
        confidence_level: float = 0.95,
    ) -> Ranking:
        """Average the ranks of the models over datasets by one metric; options as in ``table``.

        Datasets are left out as in ``summary``.

        Returns:
            Mean rank of each model, with Friedman's p-value and Nemenyi's critical difference;
            ValueError for a metric without a direction, and for fewer than two models or datasets.
        """
        return ranking(self.table([metric], view, confidence_level=confidence_level))

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        metrics: Metrics = ("mrr", "hits@10"),
        view: View | None = None,
        *,
        confidence_level: float = 0.95,
        cluster: str | None = "auto",
        title: str = "Rank study",
    ) -> str | None:
        """Write a page of tables and figures in one HTML file, for ``verify`` to check.

        ``path`` is written whole or not at all. The first metric ranks the models; ``title`` is the
        heading, and other arguments are as in ``table``.

        Returns:
            None; the text of the page if path is None. ImportError without matplotlib.
        """
        pyplot()  # raises now instead of after the computation
        table = self.table(metrics, view, confidence_level=confidence_level, cluster=cluster)
        content = Page(self, table).html(title)
        if path is None:
            return content
        write_whole(path, content.encode("utf-8"))
        return None

    def _result(
        self, name: str, measure: Measure, confidence_level: float, cluster: str | None
    ) -> DatasetResult:
        check_choice("cluster", cluster, ("auto", "group", "sample_id", "query", None))
        part, measure = self._part(name, measure)
        if part.metric:
            if cluster not in ("auto", None):
                raise ValueError(
                    "cluster must be 'auto' or None for values of queries, which are independent"
                )
            cluster = None
        key = (name, measure, confidence_level, cluster)
        if key not in self._results:
            self._results[key] = evaluate_dataset(part, measure, confidence_level, cluster)
        return self._results[key]
