"""RankStudy: ranks of many models on many data sets with several seeds."""

import os
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self, TypedDict, Unpack, overload

from torchrankmetrics.files import natural, write_whole
from torchrankmetrics.inference.intervals import check_confidence_level
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.registry import MetricLike
from torchrankmetrics.metrics.selection import Metrics, Selection
from torchrankmetrics.metrics.views import VIEWS, View
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.plots.canvas import pyplot
from torchrankmetrics.study.across import Averages, Differences, Ranking, averages, differences, ranking
from torchrankmetrics.study.cells import Measured, measured
from torchrankmetrics.study.page import Contents, OfOneMetric, page_of, protocol_of
from torchrankmetrics.study.runs import DataSet, Given, Run, find_files, paths_of, rows_of_source, source_of
from torchrankmetrics.study.tables import StudyTable, check_margin, study_table
from torchrankmetrics.validation import check_choice

CLUSTERS = (None, "group", "sample_id")


def measures_of(metrics: Metrics, view: View | None) -> list[Measure]:
    """Read what a table is asked for.

    Raises:
        TypeError, ValueError: for unknown names, and for what has no mean over seeds.
    """
    if view is not None:
        check_choice("view", view, VIEWS)
    selection = Selection([view or "base"], ["realistic"], ["both"], DEFAULT_EXPECTATION)
    measures = list(selection.measures(metrics).values())
    if not measures:
        raise ValueError("metrics is empty: name at least one")
    for measure in measures:
        if not measure.is_estimate:
            raise ValueError(
                f"{measure.key!r} has no mean over seeds and data sets: use a metric in view base, normalized, "
                "adjusted_index or z_score"
            )
    return measures


_KEPT_ROWS = 1 << 22  # of the data sets read last: a quarter of a GiB


AVERAGED = ("mrr", "adjusted_mrr", "amri", "adjusted_auc")


class _Page(TypedDict, total=False):
    confidence_level: float
    cluster: str | None
    margin: float | None
    title: str


class RankStudy:
    """Ranks by model, data set and seed: tables, figures and pages of all of them.

    Files are read when they are needed. A model that is missing on a data set is shown as missing. The tasks of a data
    set are aligned once: by (side, sample id), else by order if nobody has sorted them.

    >>> from torchrankmetrics import Ranks, RankTable
    >>> study = RankStudy()
    >>> for model, ranks in {"a": [1, 2, 1, 4], "b": [3, 2, 5, 4]}.items():
    ...     study.add(RankTable.from_ranks(Ranks(ranks, None, 9), side="tail"), model=model, dataset="toy")
    >>> study
    RankStudy(2 tables: 2 models x 1 data sets)
    """

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str, str], Run] = {}
        self._models: dict[str, None] = {}  # in their order
        self._datasets: dict[str, None] = {}
        self._read: OrderedDict[str, DataSet] = OrderedDict()
        self._measured: dict[tuple[Hashable, ...], Measured] = {}

    def add(self, table: Given, *, model: str, dataset: str, seed: int | str = 0) -> None:
        """Add the ranks of a run.

        Args:
            table: a ``RankTable``, the path of a file of one, ``Ranks``, a ``RankCollection``, or what PyKEEN's
                pipeline or evaluation gives with a ``RankCollectionEvaluator``.
            model: name of the model.
            dataset: name of the data set.
            seed: of the training.

        Raises:
            OSError: if there is no such file.
            TypeError: if it holds no ranks.
            ValueError: if it has no ranking tasks, or the study has such a run.
        """
        source = source_of(table)
        file = source.as_posix() if isinstance(source, Path) else None
        if file is not None and (Path(file).is_absolute() or ".." in Path(file).parts):
            file = Path(file).name
        self._add(Run(str(model), str(dataset), str(seed), source, file, rows_of_source(source)))

    @classmethod
    def open(cls, pattern: str | os.PathLike[str], **names: str) -> Self:
        """Find the files of a pattern, such as ``runs/{dataset}/{model}/{seed}.npz``; or of .parquet, also as folders.

        Args:
            pattern: with the fields {dataset}, {model} and {seed}, each standing for anything but "/" (and as much of
                it as it can), and * for what does not matter. Only the headers of the files are read now.
            **names: model, dataset or seed, for a field that the pattern lacks; else "model", "data" and "0".

        Raises:
            OSError: if a file cannot be opened.
            ValueError: if no file matches, one is not of ranks, or two are of the same run.
        """
        study, said = cls(), {"model": "model", "dataset": "data", "seed": "0"} | names
        for name in names:
            check_choice("names", name, ("model", "dataset", "seed"))
        files = [(said | found.fields, found) for found in find_files(pattern)]
        study.arrange(*(sorted({names[part] for names, _ in files}, key=natural) for part in ("model", "dataset")))
        for names, found in files:
            study._add(Run(**names, source=found.path, file=found.below, num_rows=rows_of_source(found.path)))
        return study

    def arrange(self, models: Sequence[str] = (), datasets: Sequence[str] = ()) -> None:
        """Put models and data sets in an order of your choice; those that are not named come after."""
        self._models = dict.fromkeys([*models, *self._models])
        self._datasets = dict.fromkeys([*datasets, *self._datasets])
        for name in self._datasets:
            self._forget(name)

    def _add(self, run: Run) -> None:
        """Add a run whose source has been opened."""
        if not run.num_rows:
            raise ValueError(f"the ranks of {run.words} hold no ranking tasks")
        key = (run.model, run.dataset, run.seed)
        if key in self.runs:
            raise ValueError(f"there is a run of {run.words} already: give another seed=")
        self.runs[key] = run
        self._models.setdefault(run.model)
        self._datasets.setdefault(run.dataset)
        self._forget(run.dataset)

    @property
    def models(self) -> list[str]:
        """The models: in the order in which they came, of files as people count, or as arranged."""
        there = {run.model for run in self.runs.values()}
        return [name for name in self._models if name in there]

    @property
    def datasets(self) -> list[str]:
        """The data sets, likewise."""
        there = {run.dataset for run in self.runs.values()}
        return [name for name in self._datasets if name in there]

    @property
    def seeds(self) -> list[str]:
        """The seeds of all runs."""
        return sorted({run.seed for run in self.runs.values()}, key=natural)

    @property
    def missing(self) -> list[tuple[str, str]]:
        """Pairs of a model and a data set without any run."""
        there = {(run.model, run.dataset) for run in self.runs.values()}
        return [(model, data) for data in self.datasets for model in self.models if (model, data) not in there]

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        seeds = f" x {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        missing = f", {len(self.missing)} of these missing" if self.missing else ""
        shape = f"{len(self.models)} models x {len(self.datasets)} data sets{seeds}"
        return f"{type(self).__name__}({len(self)} tables: {shape}{missing})"

    def save(self, pattern: str | os.PathLike[str]) -> None:
        """Write every table to a file that the pattern names, such as ``runs/{dataset}/{model}/{seed}.npz`` (.parquet).

        The study then is of these files: its page names them.

        Raises:
            OSError: if a file cannot be written.
            ValueError: if two runs would have one file, or a name holds a "/".
        """
        paths = paths_of(pattern, [dict(zip(("model", "dataset", "seed"), key, strict=True)) for key in self.runs])
        for (key, run), (path, file) in zip(self.runs.items(), paths, strict=True):
            table = run.load()
            path.parent.mkdir(parents=True, exist_ok=True)
            table.save(path)
            self.runs[key] = replace(run, source=path, file=file)

    def dataset(self, name: str) -> DataSet:
        """The runs of a data set, read and aligned; those read last are kept.

        Raises:
            OSError, ValueError: if a file cannot be read.
        """
        check_choice("dataset", name, self.datasets)
        if name not in self._read:
            order = {model: i for i, model in enumerate(self.models)}
            runs = [run for run in self.runs.values() if run.dataset == name]
            self._read[name] = DataSet(name, sorted(runs, key=lambda run: (order[run.model], natural(run.seed))))
        self._read.move_to_end(name)
        while len(self._read) > 1 and sum(one.num_rows for one in self._read.values()) > _KEPT_ROWS:
            self._read.popitem(last=False)
        return self._read[name]

    def table(
        self,
        metrics: Metrics = "mrr",
        view: View | None = None,
        *,
        confidence_level: float = 0.95,
        cluster: str | None = None,
        margin: float | None = None,
    ) -> StudyTable:
        """Models by data sets: means over seeds with the intervals that tasks and seeds give, the best and its equals.

        The best value of a data set is bold. Models that cannot be told from it are marked: all pairs of models on all
        data sets and metrics of the table are one family, in which a difference is found falsely with probability
        1 - confidence_level at most.

        Args:
            metrics: a name, a ``Measure`` or a ``RankMetric``; or several of them, side by side.
            view: of the metrics that say none: "base", "normalized", "adjusted_index" or "z_score"; None: "base".
            confidence_level: of the intervals, and of the family.
            cluster: what is drawn together: "group", "sample_id" (both sides of a triple), or None (every task alone).
            margin: > 0, in the units of the metrics, chosen before the ranks are seen: models of which it is shown that
                no other is better by so much are marked, one family over the table; None: that is not asked.

        Raises:
            OSError: if a file cannot be opened.
            ValueError: for bad options, an empty study, and files that are damaged.
        """
        confidence_level = check_confidence_level(confidence_level)
        check_choice("cluster", cluster, CLUSTERS)
        measures = measures_of(metrics, view)
        if not self.runs:
            raise ValueError("the study has no runs: add(table, model=, dataset=) some, or open a pattern of files")
        found = {
            (measure.key, name): self._cells(name, measure, confidence_level, cluster)
            for name in self.datasets
            for measure in measures
        }
        return study_table(self, measures, found, confidence_level, cluster, check_margin(margin))

    def summary(
        self,
        metrics: Metrics = AVERAGED,
        view: View | None = None,
        *,
        confidence_level: float = 0.95,
        cluster: str | None = None,
    ) -> Averages:
        """Models over all data sets: averages with the data sets as the sample, wins, and which of it is comparable.

        Arguments and errors as in ``table``; only data sets on which all models have a value are averaged.
        """
        table = self.table(metrics, view, confidence_level=confidence_level, cluster=cluster)
        return averages(table, [self.dataset(name) for name in self.datasets])

    def difference(
        self,
        a: str,
        b: str,
        metric: MetricLike = "mrr",
        view: View | None = None,
        *,
        confidence_level: float = 0.95,
        cluster: str | None = None,
    ) -> Differences:
        """Difference of two models on every data set, its mean over these, and over data sets of the kind.

        Args:
            a: name of the model that is subtracted from.
            b: name of the other.
            metric: as in ``table``, one.
            view: as in ``table``.
            confidence_level: of the intervals.
            cluster: as in ``table``.

        Raises:
            ValueError: if there is no such model, or the two can be compared nowhere.
        """
        for name in (a, b):
            check_choice("model", name, self.models)
        (one,) = measures_of([metric], view)
        confidence_level = check_confidence_level(confidence_level)
        check_choice("cluster", cluster, CLUSTERS)
        found = {name: self._cells(name, one, confidence_level, cluster) for name in self.datasets}
        return differences(a, b, one, found, confidence_level)

    def mean_ranks(
        self, metric: MetricLike = "mrr", view: View | None = None, *, confidence_level: float = 0.95
    ) -> Ranking:
        """Ranks of the models averaged over data sets, with Friedman's test and Nemenyi's critical difference.

        Raises:
            ValueError: for a metric without a direction, and for fewer than two models or data sets.
        """
        return ranking(self.table([metric], view, confidence_level=confidence_level))

    @overload
    def report(
        self, path: None = None, metrics: Metrics = ..., view: View | None = None, **page: Unpack[_Page]
    ) -> str: ...
    @overload
    def report(
        self,
        path: str | os.PathLike[str],
        metrics: Metrics = ...,
        view: View | None = None,
        **page: Unpack[_Page],
    ) -> None: ...
    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        metrics: Metrics = ("mrr", "hits@10"),
        view: View | None = None,
        *,
        confidence_level: float = 0.95,
        cluster: str | None = None,
        margin: float | None = None,
        title: str = "Rank study",
    ) -> str | None:
        """Write a page of tables and figures that needs no other file; ``verify`` checks it against the ranks.

        Args:
            path: of an HTML file, written whole or not at all; None: give the text.
            metrics: as in ``table``; the first one ranks the models.
            view: as in ``table``.
            confidence_level: as in ``table``.
            cluster: as in ``table``.
            margin: as in ``table``.
            title: of the page.

        Raises:
            ImportError: without matplotlib.
            OSError, ValueError: as ``table``, and if the path, or any cache directory of matplotlib, is not writable.
        """
        if not isinstance(title, str):
            raise TypeError(f"title must be a str, got {type(title).__name__}")
        measures = measures_of(metrics, view)
        pyplot()  # raises now instead of after the computation
        content = page_of(self, contents_of(self, measures, confidence_level, cluster, margin), title)
        if path is None:
            return content
        write_whole(path, content.encode("utf-8"))
        return None

    def _cells(self, name: str, measure: Measure, confidence_level: float, cluster: str | None) -> Measured:
        key = (name, measure, confidence_level, cluster)
        if key not in self._measured:
            self._measured[key] = measured(self.dataset(name), measure, confidence_level, cluster)
        return self._measured[key]

    def _forget(self, dataset: str) -> None:
        """Forget what was read and computed of a data set."""
        self._read.pop(dataset, None)
        self._measured = {known: value for known, value in self._measured.items() if known[0] != dataset}


def contents_of(
    study: RankStudy,
    measures: list[Measure],
    confidence_level: float,
    cluster: str | None,
    margin: float | None,
) -> Contents:
    """Compute all that a page shows."""
    table = study.table(measures, confidence_level=confidence_level, cluster=cluster, margin=margin)
    several = len(table.datasets) > 1 and len(table.models) > 1
    averages = ranking = differences = None
    directed = [one for one in table.measures if one.higher_is_better is not None]
    if several and directed:
        whole = any(
            all((one.key, m, d) in table.cells for one in directed for m in table.models) for d in table.datasets
        )
        if whole:
            averages = study.summary([*directed, *AVERAGED], confidence_level=confidence_level, cluster=cluster)
        try:
            ranking = study.mean_ranks(directed[0], confidence_level=confidence_level)
            order = sorted(range(len(table.models)), key=ranking.ranks.mean.__getitem__)
            a, b = (table.models[i] for i in order[:2])
            differences = study.difference(a, b, directed[0], confidence_level=confidence_level, cluster=cluster)
        except ValueError:  # too few data sets with all models, or models that share no tasks
            pass
    single = {one.key: OfOneMetric(table, one.key) for one in table.measures}
    return Contents(table, single, averages, ranking, differences, protocol_of(study, table))
