"""Signatures, help and registration of the metric classes."""

import inspect
import pickle
import re

import pytest

from public_metrics import METRIC_CLASSES
from torchrankmetrics import HitsAtK, RankMetric
from torchrankmetrics.metrics.named import _HOST_OPTIONS, NamedMetric
from torchrankmetrics.metrics.registry import all_names
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION

every_class = pytest.mark.parametrize("kind", METRIC_CLASSES, ids=lambda kind: kind.__name__)


@every_class
def test_the_help_of_a_metric_class_has_input_output_and_an_example(kind: type[RankMetric]) -> None:
    rest = (inspect.getdoc(kind) or "").split("As input to ``update`` the metric accepts:\n")[1]
    outputs, example = rest.split("As output of ``compute`` the metric returns:\n")[1].split("Example:\n")
    assert "value (Tensor): 0-d float64" in outputs
    assert f">>> from torchrankmetrics import {kind.__name__}\n" in example


@every_class
def test_the_signature_of_a_metric_class_has_all_arguments_that_it_accepts(kind: type[RankMetric]) -> None:
    parameters = inspect.signature(kind).parameters
    assert all(one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) for one in parameters.values())
    number = {name: 3 for name, one in parameters.items() if one.default is one.empty}
    given = {name: one.default for name, one in parameters.items()} | number
    assert kind(**given).key == kind(**number).key
    wanted = {*list(inspect.signature(RankMetric).parameters)[1:-1], *_HOST_OPTIONS}
    assert parameters.keys() - {"k", "p"} <= wanted
    other = {"view": "normalized", "rank_type": "optimistic", "side": "tail", "average": "macro", "storage": "counts"}
    other |= {"expectation": DEFAULT_EXPECTATION, "process_group": None, "dist_sync_fn": print}
    other |= {"distributed_available_fn": bool}
    for name in wanted - parameters.keys():
        with pytest.raises(ValueError, match=f"but {name}="):
            kind(**number, **{name: "base"})
    for name in wanted & parameters.keys():
        if not (name == "view" and kind(**number).higher_is_better is None):
            assert kind(**number, **{name: other.get(name, True)}).key
    with pytest.raises((TypeError, ValueError), match="wheels"):
        kind(**number, wheels=4)


def test_metric_classes_are_in_the_registry_and_can_be_inherited_and_pickled() -> None:
    names = {kind.metric_name for kind in METRIC_CLASSES if issubclass(kind, NamedMetric)}
    assert {name for name in names if not re.match("amr|adjusted_|z_", name)} <= all_names().keys()

    class Own(HitsAtK):
        """Hits at 3."""

        def __init__(self) -> None:
            super().__init__(3)

    assert not inspect.signature(Own).parameters
    assert Own().key == "hits_at_3"
    assert pickle.loads(pickle.dumps(HitsAtK(3, side="tail"))).key == "tail_hits_at_3"
