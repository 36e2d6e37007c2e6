"""An argument that is one number accepts numbers of Python and NumPy, and arrays and tensors without dimensions."""

from fractions import Fraction

import numpy as np
import pytest
import torch

import torchrankmetrics as trm
from torchrankmetrics.validation import one_number

KINDS = [np.float32, np.float64, np.float16, np.longdouble, np.array, torch.tensor, Fraction]
NOT_ONE = [True, np.True_, torch.tensor(True), 1j, np.complex64(1), "1", np.str_("1"), [1], np.array([1]), None]


@pytest.mark.parametrize("kind", [np.uint8, torch.tensor])
def test_arguments_accept_an_integer_of_another_library(kind):
    for use in (lambda x: trm.Ranks([1, 2], None, x), lambda x: trm.adjust("0.5", "mrr", x)):
        assert repr(use(kind(9))) == repr(use(9))


def test_one_number_reads_every_kind_of_number():
    assert [type(one_number(kind(2))) for kind in KINDS] == [float, float, float, float, int, int, float]
    assert [one_number(wrong) for wrong in NOT_ONE] == [None] * len(NOT_ONE)
    assert one_number(torch.tensor(2.0, requires_grad=True)) == 2
