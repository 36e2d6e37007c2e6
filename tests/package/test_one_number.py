"""An argument that is one number takes numbers of Python and NumPy, and arrays and tensors without dimensions."""

from fractions import Fraction

import numpy as np
import pytest
import torch

import torchrankmetrics as trm
from torchrankmetrics import Ranks
from torchrankmetrics.definitions.tasks import power_mean_rank
from torchrankmetrics.validation import one_number

KINDS = [np.float32, np.float64, np.float16, np.longdouble, np.array, torch.tensor, Fraction]
NOT_ONE = [True, np.True_, torch.tensor(True), 1j, np.complex64(1), "1", np.str_("1"), [1], np.array([1]), None]

a, b = Ranks([1, 2, 1, 3, 1, 2] * 20, None, 50), Ranks([1, 2, 1, 3, 2, 1] * 20, None, 50)
scores = torch.tensor([[0.3, 0.9, 0.1, 0.5], [0.8, 0.2, 0.5, 0.5]])


def updated(**options):
    metric = trm.MeanRank()
    metric.update(scores, torch.tensor([3, 1]), **options)
    return metric.rows.as_one(torch.device("cpu")).tolist()


NUMBERS = {  # all of these are exact in every kind
    "adjust": (lambda x: trm.adjust(x, "mrr", 50), 0.5),
    "compare": (lambda x: trm.compare(a, b, "mrr", confidence_level=x), 0.75),
    "power_mean_rank": (lambda x: power_mean_rank(x).name, 2.5),
    "weight": (lambda x: updated(weight=x), 2.5),
}
INTEGERS = {
    "group": lambda x: updated(group=x),
    "num_candidates": lambda x: Ranks([1, 2], None, x).num_candidates.tolist(),
    "evaluate": lambda x: trm.evaluate([1, 2], x, ["amr"]),
    "adjust": lambda x: trm.adjust("0.5", "mrr", x),
}


@pytest.mark.filterwarnings("ignore::torchrankmetrics.RankMetricWarning")
@pytest.mark.parametrize("name", NUMBERS)
def test_every_argument_takes_a_number_of_another_library(name):
    use, number = NUMBERS[name]
    assert repr(use(torch.tensor(number))) == repr(use(number))
    if name not in ("weight", "adjust"):
        for wrong in ("1", np.array([1])):
            with pytest.raises((TypeError, ValueError)):
                use(wrong)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", [np.uint8, torch.tensor])
def test_every_argument_takes_an_integer_of_another_library(name, kind):
    assert repr(INTEGERS[name](kind(9))) == repr(INTEGERS[name](9))


def test_one_number_reads_every_kind_of_number():
    assert [type(one_number(kind(2))) for kind in KINDS] == [float, float, float, float, int, int, float]
    assert [one_number(wrong) for wrong in NOT_ONE] == [None] * len(NOT_ONE)
    assert one_number(torch.tensor(2.0, requires_grad=True)) == 2
