"""superiority: how likely one model ranks an answer above the other."""

from dataclasses import dataclass

import numpy as np

from torchrankmetrics.checks import check_choice, check_int
from torchrankmetrics.evaluation.analysis import Side, sample_of
from torchrankmetrics.evaluation.clusters import Cluster
from torchrankmetrics.evaluation.intervals import check_confidence_level
from torchrankmetrics.evaluation.measure import SIDES
from torchrankmetrics.evaluation.pairing import paired_rows
from torchrankmetrics.evaluation.sources import Evaluation, check_evaluation
from torchrankmetrics.table import columns
from torchrankmetrics.theory.inference.differences import paired_shares
from torchrankmetrics.theory.inference.units import units_of


@dataclass(frozen=True)
class Superiority:
    """Probability that A ranks the answer of a task above B, equal ranks counted by half; ``print`` tells it in a line.

    Attributes:
        probability: in [0, 1]; 0.5: neither does so more often.
        low, high: its confidence interval.
        confidence_level: in (0, 1).
        p_value: two-sided, of "neither does so more often": the sign test, or sign flips with clusters and weights.
        better, worse, equal: shares of the tasks where A ranks the answer higher, lower, the same.
        num_tasks: ranking tasks that both models were compared on.
    """

    probability: float
    low: float
    high: float
    confidence_level: float
    p_value: float
    better: float
    worse: float
    equal: float
    num_tasks: int

    def __str__(self) -> str:
        return (
            f"A above B: {self.probability:.4f} [{self.low:.4f}, {self.high:.4f}] at {100 * self.confidence_level:g} "
            f"%, p = {self.p_value:.2g}; {100 * self.better:.1f} % better, {100 * self.worse:.1f} % worse, "
            f"{100 * self.equal:.1f} % equal of {self.num_tasks} tasks"
        )


def superiority(
    a: Evaluation,
    b: Evaluation,
    *,
    side: Side = "both",
    confidence_level: float = 0.95,
    cluster: Cluster | None = None,
    permutations: int = 9999,
    seed: int = 0,
) -> Superiority:
    """Estimate the probability that A ranks the answer of a task above B, P(r_A < r_B) + P(r_A = r_B) / 2.

    It depends on no metric, and says nothing of by how much. Ranks are realistic. The interval is that of the
    difference of two paired shares: Tango's, widened where the exact sign test does not reject.

    Args:
        a: a ``RankTable``, ``RankCollection`` or ``Ranks``.
        b: the other model, of the same tasks.
        side: "both", or the tasks of one.
        confidence_level: in (0, 1).
        cluster: what is drawn together, as in ``compare``.
        permutations: of the sign flips that clusters and weights need.
        seed: of the flips.

    Raises:
        TypeError, ValueError: for bad options, and tasks that are not the same.

    Source: Vargha and Delaney 2000 (doi:10.3102/10769986025002101), paired; Tango 1998 (Statist. Med. 17, 891-908).

    >>> from torchrankmetrics import Ranks
    >>> print(superiority(Ranks([1, 2, 1, 3], None, 50), Ranks([4, 2, 3, 9], None, 50)))
    A above B: 0.8750 [0.3443, 0.9772] at 95 %, p = 0.25; 75.0 % better, 0.0 % worse, 25.0 % equal of 4 tasks
    """
    confidence_level = check_confidence_level(confidence_level)
    check_int("permutations", permutations, 99)
    check_choice("side", side, SIDES)
    for run, name in ((a, "a"), (b, "b")):
        check_evaluation(run, name)
    rows, keys = paired_rows([a, b], ["a", "b"], cluster)
    used = columns.used(rows[0], side, 1)
    if not used.any():
        raise ValueError(f"no tasks of side {side!r} to compare")
    one, other = (sample_of(part[used]) for part in rows)
    gap = other.rank("realistic") - one.rank("realistic")
    wins = np.stack([gap > 0, gap < 0], 1).astype(np.float64)
    units = units_of(wins, one.weight, one.count, None if keys is None else keys[used])
    difference = paired_shares(units, units.sums[:, 0] - units.sums[:, 1], confidence_level, permutations, seed)
    better, worse = units.mean.tolist()
    assert difference.p_value is not None
    return Superiority(
        probability=(1 + better - worse) / 2,
        low=(1 + difference.low) / 2,
        high=(1 + difference.high) / 2,
        confidence_level=confidence_level,
        p_value=difference.p_value,
        better=better,
        worse=worse,
        equal=max(1 - better - worse, 0.0),
        num_tasks=one.num_tasks,
    )
