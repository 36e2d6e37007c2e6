"""What a page tells of a study: its tables by name, computed from the ranks alone, so that others can do it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torchrankmetrics.rendering import Column, Rendered, Tabular
from torchrankmetrics.study.differences import Differences
from torchrankmetrics.study.options import Options
from torchrankmetrics.study.ranking import Ranking
from torchrankmetrics.study.tables import StudyTable

if TYPE_CHECKING:
    from torchrankmetrics.study.rank_study import RankStudy

AVERAGED = ("mrr", "adjusted_mrr", "amri", "adjusted_auc")


@dataclass(frozen=True, eq=False)
class Contents:
    """The results of a page.

    Attributes:
        table: of all metrics.
        single: the same for each metric by itself, as it is shown.
        averages: over data sets; None for fewer than two data sets or models.
        ranking: likewise, of the first metric.
        differences: of the two models with the best mean rank, by the first metric; None where they are not compared.
        protocol: of each data set.
    """

    table: StudyTable
    single: Mapping[str, Rendered]
    averages: Rendered | None
    ranking: Ranking | None
    differences: Differences | None
    protocol: Rendered

    @property
    def tables(self) -> dict[str, Rendered]:
        """All tables by the names that the page has for them."""
        named = {f"values {key}": table for key, table in self.single.items()}
        across = {"averages": self.averages, "ranks": self.ranking, "differences": self.differences}
        named |= {name: table for name, table in across.items() if table is not None}
        return named | {"protocol": self.protocol}


@dataclass(frozen=True, eq=False)
class Protocol(Rendered):
    """Facts of the data sets, a row each."""

    rows: Sequence[tuple[Any, ...]]

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        names = ("dataset", "runs", "tasks", "sides", "candidates", "ties %", "in family")
        return Tabular([Column(name, key=name == "dataset") for name in names], self.rows, ())


@dataclass(frozen=True, eq=False)
class _One(Rendered):
    """The part of a table that is of one metric, marked as the whole family says."""

    table: StudyTable
    key: str

    def tabular(self) -> Tabular:
        whole = self.table
        one = tuple(measure for measure in whole.measures if measure.key == self.key)
        rows = "datasets" if len(whole.datasets) > len(whole.models) else "models"
        found = whole.only(one).shown(rows=rows)  # type: ignore[arg-type]
        # the page tells the facts of the data sets once, beside these tables
        return replace(found.tabular(), notes=found.how_to_read)


def contents_of(study: "RankStudy", options: Options) -> Contents:
    """Compute all that a page shows."""
    table = study.table(options.metrics, level=options.level, cluster=options.cluster, margin=options.margin)
    several = len(table.datasets) > 1 and len(table.models) > 1
    averages = ranking = differences = None
    directed = [one for one in table.measures if one.higher_is_better is not None]
    if several and directed:
        whole = any(
            all((one.key, m, d) in table.cells for one in directed for m in table.models) for d in table.datasets
        )
        if whole:
            averages = study.summary([*directed, *AVERAGED], level=options.level, cluster=options.cluster)
        try:
            ranking = study.mean_ranks(directed[0], level=options.level)
            order = sorted(range(len(table.models)), key=ranking.ranks.mean.__getitem__)
            a, b = (table.models[i] for i in order[:2])
            differences = study.difference(a, b, directed[0], level=options.level, cluster=options.cluster)
        except ValueError:  # too few data sets with all models, or models that share no tasks
            pass
    single = {one.key: _One(table, one.key) for one in table.measures}
    return Contents(table, single, averages, ranking, differences, _protocol(study, table))


def _protocol(study: "RankStudy", table: StudyTable) -> Protocol:
    rows = []
    for name in table.datasets:
        facts, data = table.facts[name], study.dataset(name)
        low, high = facts.candidates
        ties = sorted(100 * rate for rate in facts.tie_rates.values())
        tied = f"{ties[0]:.1f}" if ties[-1] - ties[0] < 0.05 else f"{ties[0]:.1f} to {ties[-1]:.1f}"
        sides = " and ".join(facts.sides) or "not said"
        compared = f"{len(data.aligned)} of {len(data.models)} models"
        among = f"{low} to {high}" if low != high else str(low)
        rows.append((name, len(data.reads), facts.num_tasks, sides, among, tied, compared))
    return Protocol(tuple(rows))
