"""Numbers from arrays, without state: for people who have their ranks already."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.evaluation.analysis import Analysis, Side
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.names import parse_name
from torchrankmetrics.evaluation.selection import DEFAULT_METRICS, Selection, measure_of
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.blocks import make_block
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.theory.expectation.provider import ExpectationProvider
from torchrankmetrics.theory.sample import RankType
from torchrankmetrics.theory.views import View


def evaluate(
    ranks: Any,
    num_candidates: Any = None,
    metrics: Any = None,
    *,
    weight: Any = None,
    group: Any = None,
    views: Sequence[View] = ("base",),
    rank_types: Sequence[RankType] = ("realistic",),
    sides: Sequence[Side] = ("both",),
    expectation: ExpectationProvider | None = None,
) -> dict[str, float]:
    """Compute metrics of ranks that are known already.

    Args:
        ranks: (tasks,) ranks >= 1, integers, or floats (realistic, multiples of 1/2); a ``Ranks`` or ``RankTable``.
        num_candidates: (tasks,) integers or one int; None: only base values. Not with a ``Ranks`` or ``RankTable``.
        metrics: as in ``RankCollection``; None: its default ones, of which without candidate counts the base values.
        weight: (tasks,) numbers >= 0; part of a ``RankTable``.
        group: (tasks,) integers, for macro averages; part of a ``RankTable``.
        views: as in ``RankCollection``.
        rank_types: as there.
        sides: as there.
        expectation: as there.

    Returns:
        Values by canonical key, as floats. Nothing is synchronised across processes.

    Raises:
        TypeError, ValueError: as ``Ranks`` and ``RankCollection``; for other rank types and the tie rate of float
            ranks, for other views than base without num_candidates, and for sides of anything but a ``RankTable``.

    >>> evaluate([1, 2, 5], num_candidates=9, metrics=["mr", "amri"])
    {'mr': 2.6666666666666665, 'amri': 0.5833333333333334}
    """
    complete = isinstance(ranks, Ranks | RankTable)
    if complete and num_candidates is not None:
        raise ValueError(f"num_candidates must not be given with a {type(ranks).__name__}: it has them already")
    if metrics is None and not complete and num_candidates is None:
        metrics = [name for name in DEFAULT_METRICS if parse_name(name).view is None]
    selection = Selection(views, rank_types, sides, expectation or DEFAULT_EXPECTATION)
    entries = selection.entries(DEFAULT_METRICS if metrics is None else metrics)
    measures = {key: measure_of(entry) for key, entry in entries}
    sides_asked = sorted({measure.side for measure in measures.values()} - {"both"})
    if sides_asked and not (isinstance(ranks, RankTable) and ranks.has_sides()):
        raise ValueError(
            f"sides {sides_asked} are asked for, but ranks say none; pass RankTable.from_ranks(ranks, side=...)"
        )
    if not complete:
        ranks = _as_ranks(ranks, num_candidates, measures)
    analysis = Analysis([make_block(ranks, None, None, side=None, group=group, weight=weight, sample_id=None)])
    return {key: measure.value(analysis) for key, measure in measures.items()}


def _as_ranks(values: Any, num_candidates: Any, measures: Mapping[str, Measure]) -> Ranks:
    ranks = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))  # floats are float64
    if ranks.numel() == 0:
        ranks = ranks.to(torch.int64)
    if num_candidates is None:
        for key, measure in measures.items():
            if measure.view != "base":
                raise ValueError(f"num_candidates is needed for {key!r}; without it only base values are known")
    floats = ranks.is_floating_point()
    if floats:
        wrong = ~(2 * ranks == (2 * ranks).round()) | ranks.isinf()
        if wrong.any():
            raise ValueError(f"ranks given as floats must be multiples of 1/2 (realistic ranks), got {ranks[wrong][0]}")
        for key, measure in measures.items():
            if measure.rank_type != "realistic" or measure.definition.aggregation == "tie_rate":
                raise ValueError(
                    f"{key!r} needs optimistic and pessimistic ranks; ranks given as floats are realistic only. "
                    "Pass Ranks(optimistic, pessimistic, num_candidates)"
                )
    low, high = (ranks.floor().long(), ranks.ceil().long()) if floats else (ranks, None)
    if num_candidates is None:
        num_candidates = max(int((low if high is None else high).max()), 1) if ranks.numel() else 1
    elif not isinstance(num_candidates, int):
        num_candidates = torch.as_tensor(num_candidates, device=ranks.device)
    return Ranks(low, high, num_candidates)
