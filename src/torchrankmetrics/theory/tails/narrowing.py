"""P(S >= s) near an end of the support of S, brought back to the law of what is neither sure nor out of reach.

No summand reaches s by itself, with probability E: P(S >= s) = 1 - E + E P(S >= s | E). None falls so far short of its
best that the others cannot make up for it, with probability F: P(S >= s) = F P(S >= s | F). Both are exact.
"""

import math
from dataclasses import dataclass

import numpy as np

from torchrankmetrics.theory.tails.lattice import MOST_WEIGHTS
from torchrankmetrics.theory.tails.ranges import RangeSumLaw

_ROUNDS = 4  # of both; each narrows less than the one before
_FEW = 16  # groups of tasks that are taken one by one wherever anything is left out
_SOME = 512  # groups that are where their widest range becomes much narrower; more only if sums cannot be shared
_NARROWER = 0.5
_IMPOSSIBLE = -60.0  # log of a probability that is as good as none where a smaller value is sought


@dataclass(frozen=True)
class Narrowed:
    """P(S >= s) = exp(log_reached) + exp(log_open) P(law >= s).

    Attributes:
        log_reached: log of the probability that a summand reaches s by itself.
        log_open: log of the probability that the law is needed; -inf: it is not.
        law: of S where it is.
    """

    log_reached: float
    log_open: float
    law: RangeSumLaw

    def log_tail(self, log_rest: float) -> float:
        """Log P(S >= s), given log P(law >= s)."""
        high, low = sorted((self.log_reached, self.log_open + log_rest), reverse=True)
        return min(0.0, high + math.log1p(math.exp(low - high))) if low > -math.inf else high


def narrowed(law: RangeSumLaw, s: float, rounding: float, *, below: bool = False) -> Narrowed | None:
    """Leave out of a law what does not matter to P(S >= s); None where that is nothing, or many groups remain wide.

    Args:
        law: the law of S.
        s: a value between the ends of its support.
        rounding: no atom that matters is as close to s.
        below: whether it is enough to know that P(S >= s) is next to nothing.
    """
    width = float(law.width.max())
    result = Narrowed(-math.inf, 0.0, law)
    for _ in range(_ROUNDS):
        before = result.law.ranges.size.sum()
        for narrow in (_not_by_itself, _not_too_short):
            result = narrow(result, s)
            if s > result.law.highest + rounding:
                return Narrowed(result.log_reached, -math.inf, result.law)
            if s <= result.law.lowest + rounding:
                return Narrowed(result.log_tail(0.0), -math.inf, result.law)
        if result.law.ranges.size.sum() == before:
            break
    if below and result.log_tail(0.0) < _IMPOSSIBLE:
        return Narrowed(-math.inf, -math.inf, result.law)
    if result.law.ranges.size.sum() == law.ranges.size.sum():
        return None
    groups, weights = len(result.law.ranges.count), len(np.unique(result.law.ranges.weight))
    if groups <= _FEW:
        return result
    narrower = float(result.law.width.max()) <= _NARROWER * width
    return result if narrower and (groups <= _SOME or weights > MOST_WEIGHTS) else None


def _not_by_itself(state: Narrowed, s: float) -> Narrowed:
    log_none, negated = state.law.negated().within(s - state.law.lowest)
    if log_none == 0:
        return state
    log_some = math.log(-math.expm1(log_none))
    reached = Narrowed(state.log_reached, state.log_open, state.law).log_tail(log_some)
    return Narrowed(reached, state.log_open + log_none, negated.negated())


def _not_too_short(state: Narrowed, s: float) -> Narrowed:
    log_all, law = state.law.within(state.law.highest - s)
    return Narrowed(state.log_reached, state.log_open + log_all, law)
