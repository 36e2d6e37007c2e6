"""The exceptions of the package have one base class, and are ValueErrors."""

import ast

import pytest
import torch

from scripts import ROOT
from torchrankmetrics import (
    RankCollection,
    RankDefinition,
    RankMetric,
    RankMetricError,
    Ranks,
    RankTable,
)
from torchrankmetrics.null import ExactExpectation

RANKS = Ranks([1, 3], None, 14)
PRIVATE = {"OutcomeError"}  # of the audit, which catches it


def values_without_numbers_of_candidates(path):
    metric = RankMetric("adjusted_mrr")
    metric.update(Ranks([1, 3], None, None))
    return metric.compute()


def moments_without_a_null(path):
    own = RankDefinition("own", f=lambda r: r, has_null=False)
    return ExactExpectation().moments(own, [14, 14])


def table_larger_than_allowed(path):
    RankTable.from_ranks(RANKS).save(path)
    return RankTable.load(path, max_bytes=1)


@pytest.mark.parametrize(
    ("fail", "name"),
    [
        (values_without_numbers_of_candidates, "UnknownCandidatesError"),
        (moments_without_a_null, "ExpectationUnavailableError"),
        (table_larger_than_allowed, "TooLargeError"),
    ],
)
def test_values_that_cannot_be_computed_raise_a_rank_metric_error(fail, name, tmp_path):
    with pytest.raises(RankMetricError) as caught:
        fail(tmp_path / "table.npz")
    assert type(caught.value).__name__ == name
    assert isinstance(caught.value, ValueError)


def test_every_public_exception_has_the_base_class():
    bases = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                bases[node.name] = [ast.unparse(base) for base in node.bases]
    derived = {name for name, own in bases.items() if own == ["RankMetricError"]}
    assert bases.keys() - derived == {"RankMetricError", *PRIVATE}


def test_invalid_arguments_raise_plain_errors():
    with pytest.raises(ValueError, match="unknown metric") as caught:
        RankCollection(["mrrrr"])
    assert not isinstance(caught.value, RankMetricError)
    with pytest.raises(ValueError, match="target is missing") as caught:
        RankMetric("mrr").update(torch.rand(2, 3))
    assert not isinstance(caught.value, RankMetricError)
