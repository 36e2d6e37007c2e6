"""The sign-flip test of one column."""

import numpy as np

from torchrankmetrics.inference.flips import SignFlips


def sign_flip_p_value(differences, permutations=9999, seed=0):
    return SignFlips(differences[:, None], permutations, seed).p_value(np.ones(1))
