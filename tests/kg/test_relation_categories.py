"""Relation categories (1-1, 1-n, n-1, n-n) against the words of Bordes et al. 2013."""

import math
from fractions import Fraction

import pytest
import torch

from random_graphs import graph
from torchrankmetrics.kg import RELATION_CATEGORIES, relation_categories


def categories(triples, threshold):
    """From the words of Bordes et al.: the averaged number of heads given (r, t), and of tails given (h, r)."""
    triples = {tuple(x) for x in triples}
    result = {}
    for r in sorted({r for _, r, _ in triples}):
        pairs = [(h, t) for h, s, t in triples if s == r]
        tails = Fraction(len(pairs), len({h for h, _ in pairs}))
        heads = Fraction(len(pairs), len({t for _, t in pairs}))
        result[r] = ("1" if heads < threshold else "n") + "-" + ("1" if tails < threshold else "n")
    return result


@pytest.mark.parametrize("threshold", [1.5, 1.25, 2, 4])
@pytest.mark.parametrize("seed", range(2))
def test_a_category_is_two_means_against_the_threshold(seed, threshold):
    triples = graph(seed, n=60, columns=(9, 25, 6))
    triples = torch.cat([triples, triples[:20]])  # repeats count once
    expected = categories(triples.tolist(), Fraction(threshold))
    got = relation_categories(triples, num_relations=30, threshold=threshold).tolist()
    assert len(got) == 30
    assert {r: RELATION_CATEGORIES[c] for r, c in enumerate(got) if c != -1} == expected
    assert len(set(expected.values())) > (1 if threshold < 4 else 0)
    # a mean of exactly 1.5 is "n": below it is "1" in the paper
    assert relation_categories(torch.tensor([[0, 0, 1], [0, 0, 2], [1, 0, 3]])).tolist() == [1]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"triples": torch.zeros(3, 2, dtype=torch.long)}, ValueError, r"triples must be \(n, 3\).*got \(3, 2\)"),
        ({"triples": torch.zeros(3, 3)}, TypeError, "triples must hold integers, got torch.float32"),
        ({"triples": [[0, 0, 1], [0, 1]]}, ValueError, "triples must not be ragged, got list"),
        ({"triples": torch.tensor([[0, -1, 2]])}, IndexError, "ids of at least 0, got -1"),
        ({"num_relations": 2}, IndexError, r"relations in \[0, num_relations\) = \[0, 2\), got 2"),
        ({"threshold": 1}, ValueError, "threshold must be a number above 1, the least mean; got 1"),
        ({"threshold": math.nan}, ValueError, "threshold must be a number above 1"),
        ({"threshold": "1.5"}, ValueError, "threshold must be a number above 1"),
    ],
)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        relation_categories(**({"triples": graph()} | arguments))
