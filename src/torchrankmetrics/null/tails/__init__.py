"""Tail probabilities P(S >= s) of sums S = sum of v_i f(r_i) under random ranking, in logarithms throughout."""
