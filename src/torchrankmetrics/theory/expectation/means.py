"""Null moments of a mean of any f: M = sum of v_i f(r_i) with r_i uniform on {1..N_i}, independent.

E = sum v_i E_i and V = sum v_i^2 V_i, where E_i, V_i are the moments of f over 1..N_i: in closed form where there is
one (Hoyt et al. 2022, arXiv 2203.07544, section 3 and appendix), else summed.
"""

from torchrankmetrics.theory.candidates import CandidateCounts, Moments
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.provider import strategy
from torchrankmetrics.theory.transforms import known


@strategy(lambda definition: definition.is_mean_of_f)
def mean_of_f(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Exact moments of a plain mean of a transform."""
    mean, variance = known(definition.f).null_moments(counts.num_candidates)
    share = counts.count * counts.weight
    return Moments(float((share * mean).sum()), float((share * counts.weight * variance).sum()))
