"""Metrics of sampled protocols from full ranks, and what sampled ranks leave possible of full metrics."""

from dataclasses import dataclass

import numpy as np

from torchrankmetrics.checks import check_int
from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.evaluation.intervals import check_confidence_level
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.names import Asked, asked
from torchrankmetrics.evaluation.sources import Evaluation, as_table, check_evaluation
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.inference.sampled_bounds import full_mean_bounds
from torchrankmetrics.theory.sample import RankSample
from torchrankmetrics.theory.sampled_means import sampled_mean
from torchrankmetrics.theory.transforms import apply_transform, known


@dataclass(frozen=True)
class FullBounds:
    """What a full metric can be, given the ranks among sampled negatives; ``print`` tells it in a line.

    Attributes:
        metric: canonical key.
        low, high: the bounds.
        confidence_level: of confidence that they hold the value of the full ranks of these tasks.
        sampled: value of the metric on the sampled ranks, which is no estimate of the full one.
        num_negatives, num_candidates: m of N - 1.
        num_tasks: number of tasks.
    """

    metric: str
    low: float
    high: float
    confidence_level: float
    sampled: float
    num_negatives: int
    num_candidates: int
    num_tasks: int

    def __str__(self) -> str:
        return (
            f"full {self.metric} in [{self.low:.4f}, {self.high:.4f}] at {100 * self.confidence_level:g} %, from "
            f"{self.num_tasks} ranks among {self.num_negatives} of {self.num_candidates - 1} "
            f"negatives (there {self.sampled:.4f})"
        )


def sampled_metric(metric: Asked, num_negatives: int, *, with_replacement: bool = False) -> RankDefinition:
    """Define what a metric of a sampled protocol is expected to be, from full ranks: exact, without a draw.

    Args:
        metric: one that is a mean of f, by name or definition: "mrr", "mr", "hits@10", "auc".
        num_negatives: m, sampled from the N - 1 other candidates of a task.
        with_replacement: whether a negative may be drawn twice.

    Raises:
        TypeError, ValueError: for other metrics, and a number that is no integer of at least 1 (for hits at k: k).

    Source: Krichene and Rendle 2020 (doi:10.1145/3394486.3403226), section 3.

    >>> from torchrankmetrics import evaluate
    >>> evaluate([1, 3, 40], 1001, ["mrr", sampled_metric("mrr", 50)])
    {'mrr': 0.4527..., 'sampled_mrr_50': 0.7944...}
    """
    return sampled_mean(_mean(metric)[1], num_negatives, with_replacement=with_replacement)


def full_bounds(
    sampled: Evaluation, metric: Asked = "mrr", *, num_candidates: int, confidence_level: float = 0.95
) -> FullBounds:
    """Bound a full metric by what ranks among sampled negatives leave possible, with no model of the ranks.

    Both ends are linear programs over all laws of full ranks: those under which the sampled ranks would be distributed
    as they are, to within a band that holds at the level. They are wide where m is small against N / k, because little
    is known, and no estimate inside is better than another. Ties: the lower end from pessimistic ranks, the upper from
    optimistic ones.

    Args:
        sampled: ranks among m negatives drawn uniformly without replacement, apart for every task; the same m for all.
        metric: one that is a mean of f, or a monotone function of one, in its base view.
        num_candidates: N, all candidates of a task after filtering, the same for all tasks.
        confidence_level: of confidence that the full value of these very tasks lies between.

    Raises:
        TypeError: for other sources.
        ValueError: for weights, different m, N that is no larger than m, and ranks that no full ranks agree with.

    Source: section "Sampled candidates" of the mathematics; Bretagnolle 1980 for the band.

    >>> import numpy as np
    >>> from torchrankmetrics import Ranks
    >>> ranks = 1 + np.random.default_rng(0).hypergeometric(10, 990, 100, 5000)  # full ranks of 11 among 1,001
    >>> print(full_bounds(Ranks(ranks, None, 101), "mrr", num_candidates=1001))
    full mrr in [0.0871, 0.1547] at 95 %, from 5000 ranks among 100 of 1000 negatives (there 0.6205)
    """
    confidence_level = check_confidence_level(confidence_level)
    check_int("num_candidates", num_candidates, 2)
    check_evaluation(sampled, "sampled")
    measure, definition = _mean(metric)
    sample = Analysis([as_table(sampled).rows]).sample(measure.side, "micro", definition.min_candidates)
    m = _negatives(sample, num_candidates)
    ranks = np.arange(1.0, num_candidates + 1)
    counts = np.full(num_candidates, num_candidates)
    values = apply_transform(definition.f, ranks, num_candidates=counts)
    tied = bool((sample.pessimistic > sample.optimistic).any())
    each = (1 + confidence_level) / 2 if tied else confidence_level
    better = [np.repeat(part - 1, sample.count) for part in (sample.pessimistic, sample.optimistic)]
    # f falls where small ranks are large values: then many better ones make its mean small
    worst, best = better if values[0] >= values[-1] else better[::-1]
    low = full_mean_bounds(worst, m, values, each, lowest=True)
    high = full_mean_bounds(best, m, values, each, lowest=False)
    ends = sorted(apply_transform(definition.g, np.array([low, high]), "g").tolist())
    here = measure.base(Analysis([as_table(sampled).rows]))
    return FullBounds(
        metric=measure.key,
        low=ends[0],
        high=ends[1],
        confidence_level=confidence_level,
        sampled=here,
        num_negatives=m,
        num_candidates=num_candidates,
        num_tasks=sample.num_tasks,
    )


def _mean(metric: Asked) -> tuple[Measure, RankDefinition]:
    found = asked(metric)
    definition = found.definition
    mean = definition.aggregation == "mean" and known(definition.g).direction != 0
    if found.view != "base" or found.average != "micro" or not mean or not isinstance(definition, RankDefinition):
        raise ValueError(
            f"{found.key!r} cannot be carried between full and sampled ranks: use a mean of f, such as 'mrr'"
        )
    return found, definition


def _negatives(sample: RankSample, num_candidates: int) -> int:
    numbers = np.unique(sample.known_candidates)
    if len(numbers) != 1 or numbers[0] < 2:
        raise ValueError(
            "sampled must be ranks among the same number of negatives, at least 1, for every task; got between "
            f"{numbers.min(initial=1) - 1} and {numbers.max(initial=1) - 1}"
        )
    if np.ptp(sample.weight) > 0:
        raise ValueError("sampled must be tasks of equal weight: the band is for those")
    m = int(numbers[0]) - 1
    if num_candidates <= m:
        raise ValueError(f"num_candidates must be above the number of sampled negatives, {m}, got {num_candidates}")
    return m
