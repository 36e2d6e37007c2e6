"""P(S >= s) for every s: end points in closed form, few atoms by convolution, the rest by inversion."""

import math

from torchrankmetrics.theory.tails.convolution import log_upper_tail_of_atoms
from torchrankmetrics.theory.tails.inversion import log_upper_tail, saddlepoint
from torchrankmetrics.theory.tails.laws import SumLaw


def log_at_least(law: SumLaw, s: float, slack: float, *, negated: SumLaw) -> float:
    """Log P(S >= s).

    Args:
        law: the law of S.
        s: any real number or infinity.
        slack: s reaches an atom of S this far above it; at most a quarter of a lattice's span.
        negated: the law of -S; below the mean, P(S >= s) is 1 - P(-S > -s).
    """
    if law.span is not None:
        slack = min(slack, law.span / 4)
    if s > law.highest + slack:
        return -math.inf
    if s >= law.highest - slack:
        return law.log_top
    if s <= law.lowest + slack:
        return 0.0
    above = s > law.cumulants(0.0)[0]
    if law.span is None or law.span < 1e-4 * (law.highest - law.lowest):
        t0 = saddlepoint(law, s) if above else 0.0
        exact = log_upper_tail_of_atoms(law, s - slack, t0)
        if exact is not None:
            return exact
    if law.span is None:
        return log_upper_tail(law, s - slack) if above else _log_complement(log_upper_tail(negated, slack - s))
    steps_below_top = math.floor((law.highest - s + slack) / law.span)
    if above:
        return log_upper_tail(law, law.highest - steps_below_top * law.span)
    return _log_complement(log_at_least(negated, (steps_below_top + 1) * law.span - law.highest, slack, negated=law))


def _log_complement(log_q: float) -> float:
    """Log(1 - q) from log q."""
    return math.log1p(-math.exp(log_q)) if log_q < -0.7 else math.log(-math.expm1(log_q))
