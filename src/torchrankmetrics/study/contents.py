"""What a page tells of a study: its tables by name, computed from the ranks alone, so that others can do it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchrankmetrics.rendering import Column, Rendered, Tabular
from torchrankmetrics.study.differences import Differences
from torchrankmetrics.study.hardest import HardestTasks
from torchrankmetrics.study.ranking import Ranking
from torchrankmetrics.study.run_store import RunStore
from torchrankmetrics.study.tables import StudyTable


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
        hardest: worst and best tasks by data set.
        num_hardest: how many of either; 0: none is listed.
    """

    table: StudyTable
    single: Mapping[str, Rendered]
    averages: Rendered | None
    ranking: Ranking | None
    differences: Differences | None
    protocol: Rendered
    hardest: Mapping[str, HardestTasks]
    num_hardest: int

    @property
    def tables(self) -> dict[str, Rendered]:
        """All tables by the names that the page has for them."""
        named = {f"values {key}": table for key, table in self.single.items()}
        across = {"averages": self.averages, "ranks": self.ranking, "differences": self.differences}
        named |= {name: table for name, table in across.items() if table is not None}
        named |= {f"tasks {name}": table for name, table in self.hardest.items()}
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
class OfOneMetric(Rendered):
    """The part of a table that is of one metric, marked as the whole family says."""

    table: StudyTable
    key: str

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        whole = self.table
        one = tuple(measure for measure in whole.measures if measure.key == self.key)
        rows = "datasets" if len(whole.datasets) > len(whole.models) else "models"
        found = whole.only(one).shown(rows=rows)  # type: ignore[arg-type]
        # the page tells the facts of the data sets once, beside these tables
        return replace(found.tabular(), notes=found.how_to_read)


def protocol_of(study: RunStore, table: StudyTable) -> Protocol:
    """What was ranked among what."""
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
