"""P(S >= s) for every s: end points in closed form, few atoms by convolution, lattices whole, the rest by inversion."""

import math

from torchrankmetrics.theory.tails.convolution import log_tail_by_convolution
from torchrankmetrics.theory.tails.grid import log_tail_on_grid
from torchrankmetrics.theory.tails.inversion import away_from_pole, log_tail_by_inversion
from torchrankmetrics.theory.tails.laws import SumLaw
from torchrankmetrics.theory.tails.narrowing import narrowed
from torchrankmetrics.theory.tails.ranges import RangeSumLaw

_COARSE = 1e-4  # a lattice whose span is this share of the range is inverted with a few thousand nodes at most
_FEW = 1 << 14  # atoms that are convolved in a moment


def log_upper_tail(law: SumLaw, negated: SumLaw, s: float, slack: float) -> float:
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
    if law.lowest == law.highest:
        return 0.0
    if s >= law.highest - slack:
        return law.log_top
    if s <= law.lowest + slack:
        return 0.0
    if law.span is None:
        if s > law.cumulants(0.0)[0]:
            return _log_tail_off_atoms(law, s - slack, slack)
        return _log_complement(_log_tail_off_atoms(negated, slack - s, slack, below=True))
    below_top = math.floor((law.highest - s + slack) / law.span)
    if below_top == 0:
        return law.log_top
    point = law.highest - below_top * law.span
    if point > law.cumulants(0.0)[0]:
        return _log_tail_above_mean(law, point, law.span / 4)
    worse = point - law.span
    if worse < law.lowest + law.span / 2:
        return _log_complement(negated.log_top)
    return _log_complement(_log_tail_above_mean(negated, -worse, law.span / 4, below=True))


def _log_tail_off_atoms(law: SumLaw, s: float, slack: float, *, below: bool = False) -> float:
    """Log P(S >= s) for s above the mean and no atom within ``slack`` of it that matters; there is no lattice."""
    ranges = law.by_ranges()
    left = None if ranges is None else narrowed(RangeSumLaw(*ranges), s, slack / 8, below=below)
    if left is None:
        return _log_tail_above_mean(law.reaching(s, slack), s, 0.0, below=below)
    if left.log_open == -math.inf:
        return left.log_reached
    if s > left.law.cumulants(0.0)[0]:
        return left.log_tail(_log_tail_above_mean(left.law, s, 0.0, below=below))
    log_missed = _log_tail_above_mean(left.law.negated(), -s, 0.0, below=not below)
    return left.log_tail(_log_complement(log_missed))


def _log_tail_above_mean(law: SumLaw, s: float, slack: float, *, below: bool = False) -> float:
    """Log P(S >= s) for s above the mean; on a lattice s is one of its points, found within ``slack``.

    Where it cannot be had to all digits it errs to the larger side, or to the smaller one on demand.
    """
    if law.span is not None and law.decays:
        return log_tail_by_inversion(law, s, below=below)
    t0 = away_from_pole(law, s)
    exact = log_tail_by_convolution(law, s - slack, t0, _FEW)
    if exact is None:
        exact = log_tail_on_grid(law, s, t0)
    if exact is None and (law.span is None or law.span < _COARSE * (law.highest - law.lowest)):
        exact = log_tail_by_convolution(law, s - slack, t0)
    if exact is not None:
        return exact
    return log_tail_by_inversion(law, s, t0, below=below)


def _log_complement(log_q: float) -> float:
    """Log(1 - q) from log q."""
    if log_q == -math.inf:
        return 0.0
    if log_q >= 0:
        return -math.inf
    return math.log1p(-math.exp(log_q)) if log_q < -0.7 else math.log(-math.expm1(log_q))
