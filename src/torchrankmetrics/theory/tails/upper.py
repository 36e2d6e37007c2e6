"""P(S >= s) for every s: end points in closed form, few atoms by convolution, the rest by inversion."""

import math

from torchrankmetrics.theory.tails.convolution import log_upper_tail_of_atoms
from torchrankmetrics.theory.tails.inversion import log_upper_tail, saddlepoint
from torchrankmetrics.theory.tails.laws import SumLaw

_COARSE = 1e-4  # a lattice whose span is this share of the range is inverted with a few thousand nodes at most


def log_at_least(law: SumLaw, negated: SumLaw, s: float, slack: float) -> float:
    """Log P(S >= s).

    Args:
        law: the law of S.
        negated: the law of -S; below the mean, P(S >= s) is 1 - P(-S > -s), which loses no digits.
        s: any real number or infinity.
        slack: s reaches an atom of S this far above it; at most a quarter of a lattice's span.
    """
    if law.span is not None:
        slack = min(slack, law.span / 4)
    if s > law.highest + slack:
        return -math.inf
    if s >= law.highest - slack:
        return law.log_top
    if s <= law.lowest + slack:
        return 0.0
    if law.span is None:
        if s > law.cumulants(0.0)[0]:
            return _log_tail(law, s - slack, 0.0)
        return _log_complement(_log_tail(negated, slack - s, 0.0))
    below_top = math.floor((law.highest - s + slack) / law.span)
    if below_top == 0:
        return law.log_top
    point = law.highest - below_top * law.span
    if point > law.cumulants(0.0)[0]:
        return _log_tail(law, point, law.span / 4)
    worse = point - law.span
    if worse < law.lowest + law.span / 2:
        return _log_complement(negated.log_top)
    return _log_complement(_log_tail(negated, -worse, law.span / 4))


def _log_tail(law: SumLaw, s: float, slack: float) -> float:
    """Log P(S >= s) above the mean; on a lattice s is one of its points, found within ``slack``."""
    if law.span is None or law.span < _COARSE * (law.highest - law.lowest):
        exact = log_upper_tail_of_atoms(law, s - slack, saddlepoint(law, s))
        if exact is not None:
            return exact
    return log_upper_tail(law, s)


def _log_complement(log_q: float) -> float:
    """Log(1 - q) from log q."""
    return math.log1p(-math.exp(log_q)) if log_q < -0.7 else math.log(-math.expm1(log_q))
