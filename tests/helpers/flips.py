"""The sign-flip test of one column."""

import numpy as np

from torchrankmetrics.inference.testing import sign_flips


def sign_flip_p_value(differences, permutations=9999, seed=0):
    return sign_flips(differences[:, None], permutations, seed).p_value(np.ones(1))
