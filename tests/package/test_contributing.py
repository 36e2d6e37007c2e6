"""The metric that CONTRIBUTING.md adds is one definition, and has the values of the page."""

import math
import re

import pytest

from scripts import ROOT
from torchrankmetrics import RankDefinition, RankMetric, evaluate
from torchrankmetrics.metrics.registry import Entry


def test_the_metric_of_the_page_has_every_view() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL)
    made: dict[str, object] = {}
    exec(compile(block, "CONTRIBUTING.md", "exec"), made)
    definition, row = made["definition"], made["row"]
    assert isinstance(definition, RankDefinition)
    assert isinstance(row, Entry)
    assert row.definition() is definition
    views = ("base", "normalized", "adjusted_index", "z_score", "p_value")
    values = evaluate([4], [4], {view: RankMetric(definition, view=view) for view in views})
    values_ = [math.sqrt(rank) for rank in (1, 2, 3, 4)]
    mean = sum(values_) / 4
    deviation = math.sqrt(sum((x - mean) ** 2 for x in values_) / 4)
    expected = {
        "base": 2.0,
        "normalized": 2 / mean,
        "adjusted_index": (2 - mean) / (1 - mean),
        "z_score": (mean - 2) / deviation,
        "p_value": 1.0,
    }
    assert values == pytest.approx(expected, rel=1e-12)
