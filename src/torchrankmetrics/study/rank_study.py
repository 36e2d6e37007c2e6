"""RankStudy: ranks of many models on many data sets with several seeds, and what is asked of all of them."""

import os
from collections.abc import Hashable, Mapping
from typing import TypedDict, Unpack, overload

from torchrankmetrics.checks import check_choice, check_int
from torchrankmetrics.evaluation.intervals import check_confidence_level
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.names import Asked
from torchrankmetrics.evaluation.selection import Metrics
from torchrankmetrics.files import write_whole
from torchrankmetrics.plots.canvas import pyplot
from torchrankmetrics.protocols.answers import Names
from torchrankmetrics.study.averages import Averages, averages
from torchrankmetrics.study.cells import Measured, measured
from torchrankmetrics.study.contents import Contents, OfOneMetric, protocol_of
from torchrankmetrics.study.differences import Differences, differences
from torchrankmetrics.study.hardest import HardestTasks, Triples, hardest
from torchrankmetrics.study.margins import check_margin
from torchrankmetrics.study.options import CLUSTERS, Options, measures_of
from torchrankmetrics.study.page import page_of
from torchrankmetrics.study.ranking import Ranking, ranking
from torchrankmetrics.study.run_store import RunStore
from torchrankmetrics.study.tables import StudyTable, study_table
from torchrankmetrics.theory.views import View

AVERAGED = ("mrr", "adjusted_mrr", "amri", "adjusted_auc")


class _Page(TypedDict, total=False):
    confidence_level: float
    cluster: str | None
    margin: float | None
    tasks: int
    triples: str | Mapping[str, Triples] | None
    title: str


class RankStudy(RunStore):
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
        super().__init__()
        self._measured: dict[tuple[Hashable, ...], Measured] = {}

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
        metric: Asked = "mrr",
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

    def mean_ranks(self, metric: Asked = "mrr", view: View | None = None, *, confidence_level: float = 0.95) -> Ranking:
        """Ranks of the models averaged over data sets, with Friedman's test and Nemenyi's critical difference.

        Raises:
            ValueError: for a metric without a direction, and for fewer than two models or data sets.
        """
        return ranking(self.table([metric], view, confidence_level=confidence_level))

    def tasks(
        self,
        dataset: str,
        number: int = 5,
        *,
        triples: Triples | None = None,
        entities: Names = None,
        relations: Names = None,
    ) -> HardestTasks:
        """The tasks of a data set that its models rank worst and best, with what they answered where that was kept.

        Args:
            dataset: name.
            number: how many of either.
            triples: head, relation and tail of each sample id: the file of the test triples, or an (n, 3) array or
                sequence of ids or names; None: tasks are called by their sample id and group.
            entities: names of the ids in ``triples``, a dict or a sequence.
            relations: likewise.

        The first answers of a model are shown where its table is of ``rank_triples(..., top_k=...)`` in this process.

        Raises:
            OSError: if a file cannot be read.
            ValueError: if there is no such data set, or a triple or a name is missing.
        """
        return hardest(self.dataset(dataset), check_int("number", number, 1), triples, entities, relations)

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
        tasks: int = 0,
        triples: str | Mapping[str, Triples] | None = None,
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
            tasks: how many of the worst and the best tasks of each data set are listed.
            triples: what these are called, by data set as in ``tasks``; or the pattern of the files, with {dataset}.
            title: of the page.

        Raises:
            ImportError: without matplotlib.
            OSError, ValueError: as ``table``, and if the path, or any cache directory of matplotlib, is not writable.
        """
        check_int("tasks", tasks, 0)
        if not isinstance(title, str):
            raise TypeError(f"title must be a str, got {type(title).__name__}")
        if triples is not None and not tasks:
            raise ValueError("triples are names of tasks: pass tasks=, how many are to be listed")
        names = triples or {}
        if isinstance(names, str):
            names = {name: names.replace("{dataset}", name) for name in self.datasets}
        options = Options(
            tuple(measures_of(metrics, view)), confidence_level, cluster, check_margin(margin), tasks, names
        )
        pyplot()  # raises now instead of after the computation
        content = page_of(self, options, contents_of(self, options), title)
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
        super()._forget(dataset)
        self._measured = {known: value for known, value in self._measured.items() if known[0] != dataset}


def contents_of(study: RankStudy, options: Options) -> Contents:
    """Compute all that a page shows."""
    table = study.table(
        options.metrics, confidence_level=options.confidence_level, cluster=options.cluster, margin=options.margin
    )
    several = len(table.datasets) > 1 and len(table.models) > 1
    averages = ranking = differences = None
    directed = [one for one in table.measures if one.higher_is_better is not None]
    if several and directed:
        whole = any(
            all((one.key, m, d) in table.cells for one in directed for m in table.models) for d in table.datasets
        )
        if whole:
            averages = study.summary(
                [*directed, *AVERAGED], confidence_level=options.confidence_level, cluster=options.cluster
            )
        try:
            ranking = study.mean_ranks(directed[0], confidence_level=options.confidence_level)
            order = sorted(range(len(table.models)), key=ranking.ranks.mean.__getitem__)
            a, b = (table.models[i] for i in order[:2])
            differences = study.difference(
                a, b, directed[0], confidence_level=options.confidence_level, cluster=options.cluster
            )
        except ValueError:  # too few data sets with all models, or models that share no tasks
            pass
    single = {one.key: OfOneMetric(table, one.key) for one in table.measures}
    shown = study.datasets if options.tasks else []
    tasks = {name: hardest(study.dataset(name), options.tasks, options.triples.get(name)) for name in shown}
    return Contents(table, single, averages, ranking, differences, protocol_of(study, table), tasks)
