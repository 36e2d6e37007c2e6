"""Keywords that were renamed are taken by their old names for one release; the words have one meaning everywhere."""

import inspect

import numpy as np
import pytest

from torchrankmetrics import ExactExpectation, MonteCarloExpectation, PrecomputedExpectation, definitions, inference
from torchrankmetrics.definitions import MEAN_RANK
from torchrankmetrics.errors import renamed
from torchrankmetrics.inference import InflatedExpectation, variance_inflation
from torchrankmetrics.significance import log_p_value, p_value
from torchrankmetrics.theory import definitions as deep
from torchrankmetrics.theory.candidates import CandidateCounts
from torchrankmetrics.theory.queries import definitions as of_queries

N, WEIGHT = [3, 5, 4], [1.0, 2.0, 1.0]
WEIGHED = {
    "CandidateCounts.of": lambda **weight: CandidateCounts.of(N, **weight),
    "PrecomputedExpectation": lambda **weight: PrecomputedExpectation(N, **weight).moments(MEAN_RANK, [2]),
    "exact": lambda **weight: ExactExpectation().moments(MEAN_RANK, N, **weight),
    "Monte Carlo": lambda **weight: MonteCarloExpectation(50).moments(MEAN_RANK, N, **weight),
    "stored": lambda **weight: PrecomputedExpectation(N).moments(MEAN_RANK, N, **weight),
    "inflated": lambda **weight: InflatedExpectation(2).moments(MEAN_RANK, N, **weight),
    "p_value": lambda **weight: p_value(MEAN_RANK, 2.0, N, **weight),
    "log_p_value": lambda **weight: log_p_value(MEAN_RANK, 2.0, N, **weight),
    "variance_inflation": lambda **weight: variance_inflation(MEAN_RANK, [3, 3, 5], [1, 1, 2], **weight),
}


@pytest.mark.parametrize("call", WEIGHED.values(), ids=WEIGHED)
def test_weights_is_weight_with_a_warning(call):
    with pytest.warns(
        FutureWarning, match=r"\(weights=\.\.\.\) is deprecated and goes with 0\.3: pass weight="
    ) as told:
        old = call(weights=WEIGHT)
    assert old == call(weight=WEIGHT)
    assert [warning.filename for warning in told] == [__file__]
    with pytest.raises(TypeError, match=r"weight= and weights="):
        call(weight=WEIGHT, weights=WEIGHT)


@pytest.mark.parametrize("make", [CandidateCounts.of, lambda *a, **k: PrecomputedExpectation(*a, **k).counts])
def test_multiplicities_are_count_and_counts_with_a_warning(make):
    with pytest.warns(FutureWarning, match="pass count="):
        old = make([3, 5], counts=np.array([2, 1]))
    assert old == make([3, 5], count=[2, 1]) == make([3, 3, 5])


def test_a_renamed_keyword_leaves_signature_and_name_as_they_are():
    assert list(inspect.signature(p_value).parameters) == ["definition", "value", "counts", "weight"]
    assert p_value.__name__ == "p_value"

    @renamed(old="new")
    def function(first, *, new=0):
        return first, new

    assert function(1) == (1, 0)
    assert function(1, new=2) == (1, 2)


def test_shallow_modules_hold_the_objects_of_the_deep_ones():
    of_both = {**vars(of_queries), **vars(deep)}
    assert all(getattr(definitions, name) is of_both[name] for name in definitions.__all__)
    assert {name for name in of_both if name.isupper() and not name.startswith("_")} <= set(definitions.__all__)
    assert all(hasattr(inference, name) for name in inference.__all__)


def test_the_module_that_had_the_p_values_up_to_0_1_gives_them_with_a_warning():
    with pytest.warns(FutureWarning, match="import p_value from torchrankmetrics.significance") as told:
        from torchrankmetrics.theory.significance import p_value as old
    assert old is p_value
    assert {warning.filename for warning in told} == {__file__}
