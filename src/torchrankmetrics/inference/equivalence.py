"""`equivalence`: two one-sided tests of whether two models are equal within a margin."""

from __future__ import annotations  # help() shows the names of types

import math

from torchrankmetrics.inference.clusters import Cluster
from torchrankmetrics.inference.compare import Models, checked_draws, paired
from torchrankmetrics.inference.comparison import Equivalence
from torchrankmetrics.inference.intervals import check_confidence_level, warn_of_few_tasks
from torchrankmetrics.metrics.names import MetricLike
from torchrankmetrics.validation import one_number, shorten


def equivalence(
    a: Models,
    b: Models,
    metric: MetricLike = "mrr",
    *,
    margin: float,
    confidence_level: float = 0.95,
    cluster: Cluster | None = "auto",
    n_resamples: int = 2000,
    permutations: int = 9999,
    seed: int = 0,
) -> Equivalence:
    """Test whether two models are equal within a margin, and whether ``a`` is not inferior.

    Two one-sided tests (Schuirmann 1987, doi:10.1007/BF01068419), each half of the two-sided test
    that ``compare`` inverts: they reject at 1 - confidence_level exactly if the interval of level 2
    confidence_level - 1 is on that side of the margin. Choose the margin before you see the ranks.

    Args:
        a (Ranks, RankTable, RankCollection or list): a model, or a list of its runs, as in
            ``compare``.
        b (Ranks, RankTable, RankCollection or list): the other model, of the same tasks.
        metric (str, RankDefinition or RankMetric, default "mrr"): one metric, as in ``compare``.
        margin (float): > 0, in units of the metric in its view.
        confidence_level (float, default 0.95): above 0.5.
        cluster (str or integers, default "auto"): tasks that are dependent, as in ``compare``.
        n_resamples (int, default 2000): number of bootstrap samples, for metrics that are not a
            function of a mean.
        permutations (int, default 9999): number of flips of the sign-flip test.
        seed (int, default 0): random seed of both.

    Returns:
        Difference, interval and p-values; ``equivalent`` and ``not_inferior`` are the decisions.

    Raises:
        TypeError, ValueError: as ``compare``, and for a margin that is not a finite number above 0.

    >>> from torchrankmetrics.inference import equivalence
    >>> from torchrankmetrics import Ranks
    >>> a, b = Ranks([1, 2, 1, 3, 1, 2] * 20, None, 50), Ranks([1, 2, 1, 3, 2, 1] * 20, None, 50)
    >>> equivalence(a, b, "mrr", margin=0.1).equivalent
    True
    """
    number = one_number(margin)
    if number is None:
        raise TypeError(
            f"margin must be a number, got {shorten(margin)} of type {type(margin).__name__}"
        )
    if not 0 < number < math.inf:
        raise ValueError(
            f"margin must be above 0 and finite, in the units of the metric; got {number}"
        )
    confidence_level = check_confidence_level(confidence_level)
    if confidence_level <= 0.5:
        raise ValueError(
            f"confidence_level must be above 0.5 for one-sided tests, got {confidence_level}"
        )
    level = 2 * confidence_level - 1
    (test,) = paired(a, b, [metric], cluster, checked_draws(level, n_resamples, permutations, seed))
    if math.isnan(test.slope) or test.slope == 0:
        raise ValueError(
            f"{shorten(test.measure.key)} is undefined: every possible ranking of these tasks "
            "gives the same value (zero variance under the null)"
        )
    found = test.comparison(level)
    # p-values of "the difference is -margin or lower" and "it is margin or higher"
    below = test.p_value_of(-number) / 2
    above = test.p_value_of(number) / 2
    below = below if found.difference > -number else 1 - below
    above = above if found.difference < number else 1 - above
    warn_of_few_tasks({found.metric: found.effective_tasks})
    p_equivalent = max(below, above)
    if test.measure.higher_is_better is False:
        below, above = above, below
    elif test.measure.higher_is_better is None:  # neither model is worse
        below = above = math.nan
    name = "bootstrap percentiles" if found.p_value is None else found.test
    fields = vars(found) | {
        "confidence_level": confidence_level,
        "margin": float(number),
        "test": name,
    }
    return Equivalence(**fields, p_equivalent=p_equivalent, p_not_worse=below, p_not_better=above)
