"""The sides of an evaluation, from the arguments of `rank_triples` and `rank_facts`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor
from tqdm.auto import tqdm

from torchrankmetrics.errors import warn
from torchrankmetrics.kg.answers import AnsweredTable, concatenate_tables
from torchrankmetrics.kg.candidates import warn_of_outside
from torchrankmetrics.kg.known_triples import KnownTriples, split_facts
from torchrankmetrics.kg.loop import ONLY, LookUp, LoopOptions, QuerySide
from torchrankmetrics.kg.query_tasks import QueryTasks
from torchrankmetrics.kg.scorers import Scores, both_sides
from torchrankmetrics.table.columns import far_below_random
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import (
    ENTITY_SIDES,
    QUERY_AND_ANSWER,
    EntitySide,
    check_function,
    shorten,
)

Known = TypeVar("Known")
_COLUMNS = ("head", "relation", "tail", "time")


def sides_of(
    scorers: tuple[Callable[..., Scores] | None, ...],
    tasks: Tensor,
    known: Any,
    options: LoopOptions,
    score_hrt: Callable[[Tensor], Scores] | None = None,
    num_entities: int | None = None,
    kind: Any = KnownTriples,
) -> list[QuerySide]:
    """Make the sides that have a scorer (tails, heads), from tasks (n, 3 or more).

    Errors are those of ``rank_triples``.
    """
    filters = _filters_of(known, kind)
    if (score_hrt is None) == (scorers == (None, None)):
        raise ValueError(
            "pass score_tails, score_heads or both, or score_hrt alone; the others must be None"
        )
    if score_hrt is None and num_entities is not None:
        raise ValueError(
            "num_entities is for score_hrt; score_tails and score_heads return a column for each "
            "entity, and candidates= excludes columns"
        )
    if score_hrt is not None:
        number = (
            _number_of_entities(filters, "num_entities") if num_entities is None else num_entities
        )
        if number is None:
            raise ValueError("num_entities is needed with score_hrt if known is None")
        scorers = both_sides(score_hrt, number)
    options = options._replace(
        num_entities=_number_of_entities(filters, "_given"),
        least_columns=_number_of_entities(filters, "num_entities") or 1,
    )
    sides = []
    for side, score in zip(reversed(ENTITY_SIDES), scorers, strict=True):
        if score is not None:
            takes = "two (B,) tensors of ids -> scores (B, N), an EmbeddingScorer or None"
            check_function(f"score_{side}s", score, takes)
            sides.append(_side_of(side, score, tasks, filters, options))
    _warn_of_unknown(sides[0], kind.__name__)
    return sides


def _filters_of(known: Any, kind: type[Known]) -> dict[str, Known | None]:
    """Read ``known`` as filters by name; one filter has the name ``ONLY``."""
    filters = dict(known) if isinstance(known, Mapping) else {ONLY: known}
    name = kind.__name__
    if not filters:
        raise ValueError(
            f'known as a dict must have a filter, such as {{"raw": None}}, got {known}'
        )
    for key, one in filters.items():
        if not isinstance(key, str):
            raise TypeError(f"known as a dict must have names as keys, got {shorten(key)}")
        if one is not None and not isinstance(one, kind):
            where = f"known[{key!r}]" if isinstance(known, Mapping) else "known"
            raise TypeError(
                f"{where} must be {name} or None, got {type(one).__name__}; pass {name}(*splits)"
            )
    return filters


def _number_of_entities(filters: Mapping[str, Any], attribute: str) -> int | None:
    """Return the number of entities of the filters; those that users gave must be equal."""
    found = [getattr(one, attribute, None) for one in filters.values()]
    numbers = [number for number in found if number is not None]
    if attribute == "_given" and len(set(numbers)) > 1:
        raise ValueError(f"known must have filters of one num_entities, got {sorted(set(numbers))}")
    return max(numbers, default=None)


def _side_of(
    side: EntitySide,
    score: Any,
    tasks: Tensor,
    filters: Mapping[str, Any],
    options: LoopOptions,
) -> QuerySide:
    look_ups: dict[str, LookUp | None] = {}
    for name, one in filters.items():
        look_ups[name] = None if one is None else getattr(one, f"{side}s")
    *query, target = QUERY_AND_ANSWER[side]
    columns = [_COLUMNS[i] for i in query]
    columns += _COLUMNS[3 : tasks.shape[1]]
    queries = QueryTasks(*split_facts(tasks, side))
    return QuerySide(side, score, queries, look_ups, options, (*columns, _COLUMNS[target]))


def rank_sides(sides: Sequence[QuerySide], group: Tensor | None) -> dict[str, AnsweredTable]:
    """Rank the tasks of all sides, by filter; ``group`` (n,) is that of each task of a side."""
    total = sum(len(side.tasks) for side in sides)
    options = sides[0].options
    disable = None if options.progress else True
    with tqdm(total=total, desc="ranking", unit="query", disable=disable) as bar:
        ranked = [side.rank(group, bar) for side in sides]
    tables = {}
    for name in sides[0].filters:
        tables[name] = concatenate_tables([one[name] for one in ranked])
    warn_of_distances(next(iter(tables.values())), options.higher_is_better)
    outside = sum(side.outside for side in sides)
    warn_of_outside(outside, sum(len(side.tasks.row) for side in sides))
    return tables


def warn_of_distances(table: RankTable, higher_is_better: bool) -> None:
    """Warn if the mean rank is so far worse than random that scores must be distances."""
    if found := far_below_random(table.rows.cpu().numpy()):
        remedy = (
            "distances? Then pass"
            if higher_is_better
            else "scores, higher is better? Then leave out"
        )
        warn(f"{found}: are these {remedy} higher_is_better=False")


def _warn_of_unknown(side: QuerySide, kind: str) -> None:
    """Warn if evaluated triples are in no filter of ``known``: it lacks a split."""
    tasks = side.tasks
    lost = []
    for look_up in side.filters.values():
        if look_up is not None:
            known = look_up(*tasks.queries.unbind(1))
            if len(known.columns):  # else no filter, on purpose
                lost.append(int((~known.contain(tasks.row, tasks.targets)).sum()))
    fewest = min(lost, default=0)
    if fewest:
        warn(
            f"{fewest} of {len(tasks.row)} evaluated triples are not in known: other true triples "
            f"of their split count as wrong candidates; pass known={kind}(train, valid, test)"
        )
