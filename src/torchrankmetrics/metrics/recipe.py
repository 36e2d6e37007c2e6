"""What a RankCollection is asked for becomes members: names multiply with views, rank types and sides."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from torchmetrics import Metric, MetricCollection

from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.metrics.names import parse_name
from torchrankmetrics.metrics.views import has_meaning
from torchrankmetrics.theory.sample import RANK_TYPES, RankType
from torchrankmetrics.theory.views import VIEWS, View

Side = Literal["both", "head", "tail"]
SIDES: tuple[Side, ...] = get_args(Side)
_KEY = re.compile(r"[a-z][a-z0-9_]*")


class Recipe:
    """How names become members.

    Args:
        views: multiply names that say no view.
        rank_types: multiply names that say no rank type.
        sides: multiply names that say no side.
        options: further keyword arguments of every member.

    Raises:
        ValueError: if one of the sequences is empty, a string, or holds an unknown entry.
    """

    def __init__(
        self, views: Sequence[View], rank_types: Sequence[RankType], sides: Sequence[Side], options: dict[str, Any]
    ) -> None:
        self.views = _listed(views, "views", VIEWS)
        self.rank_types = _listed(rank_types, "rank_types", RANK_TYPES)
        self.sides = _listed(sides, "sides", SIDES)
        self.options = options

    def members(self, metrics: Any) -> Iterator[tuple[str, RankMetric]]:
        """Give keys and metrics in the order asked for; what a product and a name both ask for comes once.

        Raises:
            TypeError, ValueError: as ``RankCollection``.
        """
        if isinstance(metrics, str | RankMetric):
            metrics = [metrics]
        if isinstance(metrics, MetricCollection):
            metrics = dict(metrics.items(keep_base=True, copy_state=False))
        if isinstance(metrics, Mapping):
            for key, entry in metrics.items():
                if not isinstance(key, str) or not _KEY.fullmatch(key):
                    raise ValueError(f"a key must match [a-z][a-z0-9_]*, so that every logger takes it; got {key!r}")
                yield key, self._one(entry)
            return
        if not isinstance(metrics, Sequence):
            raise TypeError(f"metrics must be names, RankMetric instances or a dict, got {type(metrics).__name__}")
        seen: set[str] = set()
        for entry in metrics:
            for key, member in self._product(entry):
                if isinstance(entry, str) and key in seen:
                    continue
                seen.add(key)
                yield key, member
        if metrics and not seen:  # nothing was left of the products: the first of them says why
            name = parse_name(metrics[0])
            view, rank_type = name.view or self.views[0], name.rank_type or self.rank_types[0]
            RankMetric(name.definition, view=view, rank_type=rank_type, side=name.side, **self.options)

    def _one(self, entry: Any) -> RankMetric:
        """An instance as it is, or the one metric that a name says."""
        if isinstance(entry, RankMetric):
            return entry
        if isinstance(entry, Metric | MetricCollection):
            raise TypeError(
                f"{type(entry).__name__} is not a RankMetric; put it beside the RankCollection in a MetricCollection"
            )
        name = parse_name(entry)
        view, rank_type = name.view or "base", name.rank_type or "realistic"
        return RankMetric(name.definition, view=view, rank_type=rank_type, side=name.side, **self.options)

    def _product(self, entry: Any) -> Iterator[tuple[str, RankMetric]]:
        if not isinstance(entry, str):
            member = self._one(entry)
            yield member.key, member
            return
        name = parse_name(entry)
        views = self.views if name.view is None else (name.view,)
        rank_types = self.rank_types if name.rank_type is None else (name.rank_type,)
        sides = (name.side,) if name.says_side else tuple(None if side == "both" else side for side in self.sides)
        # what the name itself says must have a meaning; what the products add to it is left out if it has none
        said = has_meaning(name.definition, name.view or "base", name.rank_type or "realistic")
        for side, rank_type, view in itertools.product(sides, rank_types, views):
            if said and not has_meaning(name.definition, view, rank_type):
                continue
            member = RankMetric(name.definition, view=view, rank_type=rank_type, side=side, **self.options)
            yield member.key, member


def _listed(values: Any, name: str, choices: tuple[str, ...]) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise ValueError(f"{name} must be a sequence of strings, not empty; got {values!r}")
    for value in values:
        if value not in choices:
            raise ValueError(f"{name} must be of {', '.join(map(repr, choices))}; got {value!r}")
    return tuple(dict.fromkeys(values))
