"""p-values of values that you have (metrics give them as the view ``p_value``), and those that keep dependence."""

from torchrankmetrics.evaluation.chance import PermutationTest, clustered_p_value, permutation_p_value, permutation_test
from torchrankmetrics.theory.tails.significance import has_p_value, log_p_value, p_value

__all__ = [
    "PermutationTest",
    "clustered_p_value",
    "has_p_value",
    "log_p_value",
    "p_value",
    "permutation_p_value",
    "permutation_test",
]
