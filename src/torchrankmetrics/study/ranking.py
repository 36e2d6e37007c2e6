"""Mean ranks of models over data sets, as the critical difference diagram shows them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchrankmetrics.plots.across import critical_difference
from torchrankmetrics.rendering import Column, Rendered, Tabular
from torchrankmetrics.study.averages import complete, value_of
from torchrankmetrics.study.tables import StudyTable
from torchrankmetrics.theory.inference.across import MeanRanks, mean_ranks

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure


@dataclass(frozen=True, eq=False)
class Ranking(Rendered):
    """Mean ranks of models over data sets, with the difference that they must have to be told apart."""

    metric: str
    models: tuple[str, ...]
    ranks: MeanRanks
    left_out: tuple[str, ...]

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw the critical difference, see ``plots.critical_difference``."""
        return critical_difference(self.models, self.ranks, ax=ax)

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        order = sorted(range(len(self.models)), key=lambda i: self.ranks.mean[i])
        groups = [
            "".join(chr(97 + g) for g, clique in enumerate(self.ranks.cliques) if i in clique)
            for i in range(len(self.models))
        ]
        lines = [(self.models[i], self.ranks.mean[i], groups[i]) for i in order]
        found = self.ranks
        confidence_level, apart = f"{100 * (1 - found.confidence_level):.3g} %", f"{found.critical_difference:.2f}"
        notes = [
            f"Mean ranks by {self.metric} over {found.num_datasets} data sets, 1 is best. Friedman: p = "
            f"{found.p_value:.2g}; Nemenyi: models less than {apart} apart share a letter, as they are not told "
            f"apart at {confidence_level}. How large a difference is on a data set is not looked at."
        ]
        if self.left_out:
            notes.append(f"Without {', '.join(self.left_out)}, where a model has no value.")
        columns = [Column("model", key=True), Column("mean_rank", "mean rank", digits=2), Column("group")]
        return Tabular(columns, lines, tuple(notes))


def ranking(table: StudyTable) -> Ranking:
    """Rank the models of a table on every data set by its first measure.

    Raises:
        ValueError: for a metric without a direction, and for fewer than two models or data sets.
    """
    one = table.measures[0]
    if one.higher_is_better is None:
        raise ValueError(f"{one.key!r} has no direction, so that no model is best by it: choose another metric")
    chosen, left_out = complete(table, one)
    if len(chosen) < 2 or len(table.models) < 2:
        raise ValueError(
            "mean ranks need at least 2 models and 2 data sets with values of all of them, got "
            f"{len(table.models)} and {len(chosen)}"
        )
    values = [[value_of(table, one, m, d) for m in table.models] for d in chosen]
    ranks = mean_ranks(values, higher_is_better=one.higher_is_better, confidence_level=table.confidence_level)
    return Ranking(one.key, table.models, ranks, tuple(left_out))
