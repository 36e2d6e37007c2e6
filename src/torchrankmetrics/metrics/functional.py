"""Numbers from arrays, without state: for people who have their ranks already."""

from typing import Any

from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.collection import DEFAULT_METRICS, RankCollection
from torchrankmetrics.metrics.names import parse_name
from torchrankmetrics.ranking.arrays import as_ids, as_tensor
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.table import RankTable


def evaluate(
    ranks: Any,
    num_candidates: Any = None,
    metrics: Any = None,
    *,
    weight: Any = None,
    group: Any = None,
    **options: Any,
) -> dict[str, float]:
    """Compute metrics of ranks that are known already.

    Args:
        ranks: (tasks,) ranks >= 1, integers, or floats (realistic, multiples of 1/2); a ``Ranks`` or ``RankTable``.
        num_candidates: (tasks,) integers or one int; None: only base values. Not with a ``Ranks`` or ``RankTable``.
        metrics: as in ``RankCollection``; None: its default ones, of which without candidate counts the base values.
        weight: (tasks,) numbers >= 0; part of a ``RankTable``.
        group: (tasks,) integers, for macro averages; part of a ``RankTable``.
        **options: those of ``RankCollection``: views, rank_types, sides, expectation.

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
    collection = RankCollection(metrics, **options)
    members = {str(key): member for key, member in zip(collection.keys(), collection._members(), strict=True)}
    sides = sorted({member.side for member in members.values() if member.side is not None})
    if sides and not isinstance(ranks, RankTable):
        raise ValueError(f"sides {sides} are asked for, but ranks say none; pass RankTable.from_ranks(ranks, side=...)")
    if not complete:
        ranks = _as_ranks(ranks, num_candidates, list(members.values()))
    collection.update(ranks, group=group, weight=weight)
    analysis = Analysis(collection._leader.rows)
    return {key: member._number(analysis) for key, member in members.items()}


def _as_ranks(values: Any, num_candidates: Any, members: list[Any]) -> Ranks:
    ranks = as_tensor(values, "ranks")  # floats are float64
    if ranks.numel() == 0:
        ranks = ranks.long()
    if num_candidates is None:
        for member in members:
            if member.view != "base":
                raise ValueError(f"num_candidates is needed for {member.key!r}; without it only base values are known")
    floats = ranks.is_floating_point()
    if floats:
        wrong = ~(2 * ranks == (2 * ranks).round()) | ~(ranks.abs() < 2.0**62)
        if wrong.any():
            raise ValueError(
                "ranks given as floats must be multiples of 1/2 (realistic ranks) and below 2^62, "
                f"got {ranks[wrong][0]}"
            )
        for member in members:
            if member.rank_type != "realistic" or member.definition.aggregation == "tie_rate":
                raise ValueError(
                    f"{member.key!r} needs optimistic and pessimistic ranks; ranks given as floats are realistic only. "
                    "Pass Ranks(optimistic, pessimistic, num_candidates)"
                )
    low, high = (ranks.floor().long(), ranks.ceil().long()) if floats else (as_ids(ranks, "ranks"), None)
    if num_candidates is None:
        num_candidates = max(int((low if high is None else high).max()), 1) if ranks.numel() else 1
    elif not isinstance(num_candidates, int):
        num_candidates = as_tensor(num_candidates, "num_candidates").to(ranks.device)
    return Ranks(low, high, num_candidates)
