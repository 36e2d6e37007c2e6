"""Tail probabilities P(S >= s) of sums S of independent summands, in logarithms throughout."""
