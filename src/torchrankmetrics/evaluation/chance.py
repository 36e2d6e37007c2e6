"""p-values against a chance that keeps dependence: triples dealt anew, reference runs, clusters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from torchrankmetrics.checks import check_int
from torchrankmetrics.evaluation.analysis import Analysis, sample_of
from torchrankmetrics.evaluation.clusters import Cluster
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.names import Asked, asked
from torchrankmetrics.evaluation.pairing import paired_rows
from torchrankmetrics.evaluation.sources import Evaluation, as_table, check_evaluation
from torchrankmetrics.sides import EntitySide
from torchrankmetrics.table import columns
from torchrankmetrics.theory.candidates import FloatArray
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.inference.clustered import clustered_p
from torchrankmetrics.theory.inference.exchange import ExchangeableTriples, exact_share
from torchrankmetrics.theory.inference.units import is_mean, task_values
from torchrankmetrics.theory.sample import RankSample
from torchrankmetrics.theory.tails.significance import has_p_value
from torchrankmetrics.theory.transforms import apply_transform

_CELLS = 1 << 22


@runtime_checkable
class Exchangeable(Protocol):
    """What ``rank_answers`` gives, as far as dealing its triples anew goes."""

    @property
    def groups(self) -> Sequence[ExchangeableTriples]:
        """The triples of every relation."""
        ...


@dataclass(frozen=True)
class PermutationTest:
    """A value among those of deals or of reference runs; ``print`` tells it in a line.

    Attributes:
        metric: canonical key of the base value.
        value: observed.
        mean, standard_deviation: of the draws.
        p_value: share of the draws, the observed value among them, that are at least as good: at least 1 / (draws + 1).
        draws: their values, (b,) float64.
        movable: share of the tasks in relations that have another deal; 1 for reference runs.
    """

    metric: str
    value: float
    mean: float
    standard_deviation: float
    p_value: float
    draws: FloatArray
    movable: float

    @property
    def z_score(self) -> float:
        """Distance of the value from the mean of the draws in their standard deviations; NaN where they do not vary."""
        spread = self.standard_deviation
        return (self.value - self.mean) / spread if spread > 0 else math.nan

    def __str__(self) -> str:
        number = len(self.draws)
        p = f"p = 1/{number + 1}, the least" if self.p_value * (number + 1) < 1.5 else f"p = {self.p_value:.2g}"
        return (
            f"{self.metric}: {self.value:.4f}, by chance {self.mean:.4f} ± {self.standard_deviation:.4f} "
            f"({number} draws): {p}"
        )


def permutation_test(
    source: Exchangeable | Evaluation,
    metric: Asked = "mrr",
    *,
    reference: Sequence[Evaluation] | None = None,
    permutations: int = 999,
    seed: int = 0,
) -> PermutationTest:
    """Ask how a value stands among those by a chance that keeps who is asked, and what is preferred.

    Of ``rank_answers``: test triples are dealt anew within each relation, every head and every tail as often as before,
    no triple of another split; both sides of a triple move together. Exact if, given the scores, all such deals are as
    likely as the true one: the model knows no more of the test triples than how often entities are their heads and
    tails, and these might as well have been dealt. Where they follow from clusters of entities blind scorers are
    rejected too often (Kinships: about 25 % at 5 %; see docs/significance.md). With ``reference``: exact if the run and
    the references, untrained or blind ones say, are exchangeable.

    Args:
        source: what ``rank_answers`` gives; with references a ``RankTable``, ``RankCollection`` or ``Ranks``.
        metric: one metric that has a direction, averaged over tasks; with deals a mean of f.
        reference: evaluations of other runs on the same tasks.
        permutations: number of deals.
        seed: of the deals.

    Raises:
        TypeError, ValueError: for sources of another kind, metrics without direction, and bad options.

    Source: Besag and Clifford 1989 (doi:10.1093/biomet/76.4.633); Phipson and Smyth 2010 (doi:10.2202/1544-6115.1585).
    """
    measure = _base(metric)
    check_int("permutations", permutations, 19)
    if reference is not None:
        values = [_value(measure, run, name) for run, name in _named(source, reference)]
        value, drawn, movable = values[0], np.array(values[1:]), 1.0
    elif isinstance(source, Exchangeable):
        value, drawn, movable = _dealt(measure, source.groups, permutations, seed)
    else:
        raise TypeError(
            "source must be what rank_answers gives (triples can be dealt anew), or a table with reference= runs; got "
            f"{type(source).__name__}"
        )
    p_value = exact_share(value, drawn, bool(measure.higher_is_better))
    spread = float(drawn.std()) if np.ptp(drawn) > 1e-12 * abs(value) else 0.0  # sums in another order are no spread
    return PermutationTest(measure.key, value, float(drawn.mean()), spread, p_value, drawn, movable)


def permutation_p_value(
    source: Exchangeable | Evaluation,
    metric: Asked = "mrr",
    *,
    reference: Sequence[Evaluation] | None = None,
    permutations: int = 999,
    seed: int = 0,
) -> float:
    """The p-value of ``permutation_test``, in [1 / (permutations + 1), 1].

    With deals it keeps its size only if they are as likely as the true one: see there.
    """
    return permutation_test(source, metric, reference=reference, permutations=permutations, seed=seed).p_value


def clustered_p_value(
    evaluation: Evaluation, metric: Asked = "mrr", *, cluster: Cluster, second_cluster: Cluster | None = None
) -> float:
    """One-sided p-value of "no better than uniform ranks on average" whose error lets the tasks of a cluster depend.

    It is computed from pessimistic ranks, whatever the rank type of the metric.

    Student's t of the mean of f less its mean by chance. It lets tasks of a query, or of an answer, depend in any way,
    and needs many clusters: with few, or with one that outweighs the others, it rejects too often.

    Args:
        evaluation: a ``RankTable``, ``RankCollection`` or ``Ranks``.
        metric: one metric that is a function of a mean of f and has a direction.
        cluster: "group", "sample_id" or int64 keys aligned with the tasks, as in ``compare``.
        second_cluster: keys of another kind, the answers beside the queries say: then tasks that share either depend.

    Raises:
        TypeError, ValueError: for other metrics, bad keys, and fewer than two clusters.

    Source: Cameron, Gelbach and Miller 2011 (doi:10.1198/jbes.2010.07136), for two kinds of clusters.
    """
    measure = _base(metric)
    assert isinstance(measure.definition, RankDefinition)
    check_evaluation(evaluation, "evaluation")
    kinds = [cluster] if second_cluster is None else [cluster, second_cluster]
    paired = [paired_rows([evaluation], ["evaluation"], kind) for kind in kinds]
    rows = paired[0][0][0]
    used = columns.used(rows, measure.side, measure.definition.min_candidates)
    sample = sample_of(rows[used], measure.average)
    keys = [key[used] for _, key in paired if key is not None]
    return clustered_p(measure.definition, sample, keys)


def _base(metric: Asked) -> Measure:
    found = asked(metric)
    of_tasks = isinstance(found.definition, RankDefinition)
    if not of_tasks or found.higher_is_better is None or not has_p_value(found.definition):
        raise ValueError(f"{found.key!r} has no such p-value: it is no function of a mean of f over tasks")
    base = next(found.seen_as("base"))
    assert base is not None
    return base


def _named(source: object, reference: Sequence[Evaluation]) -> list[tuple[Evaluation, str]]:
    if not reference:
        raise ValueError("reference is empty: pass the evaluations of at least one other run")
    runs = [(source, "source"), *((run, f"reference[{i}]") for i, run in enumerate(reference))]
    for run, name in runs:
        check_evaluation(run, name)
    return runs  # type: ignore[return-value]


def _value(measure: Measure, run: Evaluation, name: str) -> float:
    value = measure.base(Analysis([as_table(run).rows]))
    if math.isnan(value):
        raise ValueError(f"{name} has no tasks for {measure.key!r}")
    return value


def _dealt(
    measure: Measure, groups: Sequence[ExchangeableTriples], permutations: int, seed: int
) -> tuple[float, FloatArray, float]:
    """The value, those of deals, and the share of tasks that can move."""
    if not is_mean(measure.definition, measure.rank_type) or measure.average != "micro":
        raise ValueError(f"{measure.key!r} cannot be dealt: use a metric that is a mean of f over all tasks")
    rng = np.random.default_rng(seed)
    sums, number, moving = np.zeros(permutations + 1), 0, 0
    for group in groups:
        deals = np.concatenate([group.tail[None], group.draw(permutations, rng)])
        for side in group.sides:
            if measure.side not in ("both", side):
                continue
            step = max(1, _CELLS // len(group.tail))
            parts = [_sums(measure, group, side, deals[at : at + step]) for at in range(0, len(deals), step)]
            sums += np.concatenate([part for part, _ in parts])
            number += parts[0][1]
            moving += 0 if group.is_fixed else parts[0][1]
    if number == 0:
        raise ValueError(f"there are no tasks for {measure.key!r}")
    values = apply_transform(measure.definition.g, sums / number, "g")
    return float(values[0]), values[1:], moving / number


def _sums(measure: Measure, group: ExchangeableTriples, side: EntitySide, deals: np.ndarray) -> tuple[FloatArray, int]:
    low, high, counts = group.ranks(deals, side)
    enough = counts >= measure.definition.min_candidates
    sample = RankSample(low[enough], high[enough], counts[enough])
    values = np.zeros(counts.shape)
    values[enough] = task_values(measure.definition, sample, measure.rank_type)
    return values.sum(1), int(enough[0].sum())
