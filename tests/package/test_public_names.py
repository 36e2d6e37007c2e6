"""Every public name completes and is in the reference; metrics have one row each in the docs."""

import importlib
import re
import rlcompleter

import torchrankmetrics
from scripts import ROOT, forked
from torchrankmetrics.definitions.protocol import VIEWS
from torchrankmetrics.metrics.registry import all_names, as_measure

NAMES = {name for name in torchrankmetrics.__all__ if name != "__version__"}
MODULES = ("audit", "datasets", "definitions", "inference", "kg", "null")
MODULES += ("plots", "queries", "ranking", "sequential", "study")
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
PATHS = re.findall(r"^   ([A-Za-z][\w.]*)$", REFERENCE, re.MULTILINE)
QUIET = """
import warnings
warnings.simplefilter("error")
import torch, torchmetrics, torchrankmetrics as trm
assert all(hasattr(trm, name) for name in trm.__all__)
mixed = torchmetrics.MetricCollection([trm.HitsAtK(1), trm.MeanReciprocalRank()])
mixed.update(torch.eye(3), torch.arange(3))
assert set(map(float, mixed.compute().values())) == {1.0}
ranks = trm.RankCollection()
ranks.update(torch.eye(14).repeat(3, 1), torch.arange(42) % 14)
ranks.summary(), ranks.clone().compute()
"""


def test_every_public_name_completes() -> None:
    completer = rlcompleter.Completer({"trm": torchrankmetrics})
    found: set[str] = set()
    while completion := completer.complete("trm.", len(found)):
        found.add(completion.removeprefix("trm.").rstrip("()"))
    assert found >= NAMES
    for name in MODULES:
        module = importlib.import_module(f"torchrankmetrics.{name}")
        assert set(module.__all__) <= set(dir(module))


def test_the_reference_has_every_public_name() -> None:
    assert len(set(PATHS)) == len(PATHS)
    documented = {*PATHS, *re.findall(r"`(\w+)`", REFERENCE)}
    public_names = NAMES - {*MODULES, "integrations"}
    for module in MODULES:
        own = importlib.import_module(f"torchrankmetrics.{module}").__all__
        public_names |= {f"{module}.{name}" for name in own if not {name, f"{module}.{name}"} & documented}
    assert public_names <= documented, public_names - documented


def test_the_page_of_metrics_has_every_name_with_its_direction_and_views() -> None:
    rows, expected = {}, {}
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        if len(cells := line.strip("| ").split(" | ")) == 7:
            rows |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[0]), (cells[3], cells[4]))
    for name in all_names():
        measure = as_measure(name.replace("<k>", "10").replace("<p>", "2"))
        views = "".join(view[0] for view, one in zip(VIEWS, measure.with_views(*VIEWS), strict=True) if one)
        expected[name] = {True: "higher", False: "lower", None: "none"}[measure.higher_is_better], views
    assert rows == expected


def test_nothing_warns_when_every_warning_is_an_error() -> None:
    result = forked("-c", QUIET, cwd=ROOT, anew=["torchrankmetrics"])
    assert result.returncode == 0, result.stderr[-2000:]
