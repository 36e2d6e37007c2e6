"""Rows that are not ranking tasks: scores of flat lists, and queries without a relevant item.

Flat scores are rows until `compute`, where the whole list of every query is ranked.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.definitions.sample import changes
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import Integers, as_ids, as_tensor
from torchrankmetrics.ranking.counting import chosen
from torchrankmetrics.ranking.ranks import Ranks, rank_listed, trusted
from torchrankmetrics.table.columns import (
    ABSENT,
    ONE,
    SIDE_BITS,
    SIDES_BY_CODE,
    Columns,
    Rows,
    canonical_rows,
    gains,
    is_empty_query,
    raise_faults,
    refuse,
    sorted_rows,
    weights,
)
from torchrankmetrics.table.task_facts import TaskFacts, facts_of_rows

_EXACT = 1 << 53  # larger integers are not all float64 numbers


def read_entries(
    preds: Tensor, target: Any, indexes: Integers, exclude: Any, facts: TaskFacts, backend: str
) -> tuple[Ranks, TaskFacts]:
    """Read flat scores (T,) as ranks that are bits of scores, with labels as gain, and their facts.

    Arguments as of ``RankMetric.update`` with ``indexes``, which are the queries. With ``exclude``,
    waits for an accelerator.
    """
    if preds.ndim != 1 or preds.is_complex():
        raise ValueError(
            f"preds must be real and (T,) with indexes, got {preds.dtype} {tuple(preds.shape)}"
        )
    if facts.query is not None:
        raise ValueError(
            "query must not be given with indexes, which name the query of every score in all "
            "updates"
        )
    chosen(preds, backend)  # raises for a backend that does not exist
    score = _numbers(preds.detach(), "preds")
    label = _labels(target, facts.gain, score)
    facts = facts._replace(query=as_ids(_flat(indexes, "indexes", score), "indexes"), gain=None)
    if exclude is not None:
        candidates = ~_excluded(exclude, label)
        names = ("group", "weight", "sample_id", "query")
        facts = facts_of_rows(facts, candidates, score, *names)
        score = score[candidates]
        label = label[candidates]
    zero = torch.zeros_like(score, dtype=torch.int64)
    flags = fault.check(
        ~(label >= 0) | label.isinf(),
        label,
        "target must contain finite labels of at least 0",
        fault.WEIGHT,
        torch.full_like(zero, fault.ENTRY),
    )
    columns = torch.stack((score.view(torch.int64), zero, zero))
    return trusted(columns, flags, None, label + 0.0), facts  # -0.0 and 0.0 have different bits


def _flat(values: Any, name: str, preds: Tensor) -> Tensor:
    tensor = as_tensor(values, name)
    if tensor.shape != preds.shape:
        raise ValueError(
            f"{name} must be (T,) = {tuple(preds.shape)} as preds, got {tuple(tensor.shape)}"
        )
    return tensor.to(preds.device)


def _numbers(tensor: Tensor, name: str) -> Tensor:
    """Read real numbers as float64; integers must be exact in it, which is looked up."""
    if tensor.is_complex():
        raise TypeError(f"{name} must contain real numbers (T,), got {tensor.dtype}")
    numbers = tensor.to(torch.float64)
    if tensor.dtype in (torch.int64, torch.uint64) and (numbers.abs() > _EXACT).any():
        raise ValueError(f"{name} as integers must be within 2^53, got larger ones; pass floats")
    return numbers


def _labels(target: Any, gain: Any, score: Tensor) -> Tensor:
    """Read the label of every score, float64 (T,): ``target``, or the gain of a relevant item."""
    given = _flat(target, "target", score)
    label = _numbers(given, "target")
    if gain is None:
        return label
    if given.dtype != torch.bool:
        raise ValueError("gain must not be given with a graded target, whose labels are the gains")
    gains = as_tensor(gain, "gain")
    gains = gains.expand(len(score)) if gains.ndim == 0 else gains
    return label * _numbers(_flat(gains, "gain", score), "gain")


def _excluded(exclude: Any, label: Tensor) -> Tensor:
    excluded = _flat(exclude, "exclude", label)
    if excluded.dtype != torch.bool:
        raise TypeError(f"exclude must be bool (T,) with indexes, got {excluded.dtype}")
    if (excluded & (label != 0)).any():
        raise ValueError(
            "exclude must not contain relevant items of target: it marks what is not ranked"
        )
    return excluded


def check_entries(rows: Tensor) -> Tensor:
    """Return entries from a file or another program (n, 10), if an update could make them."""
    about = Columns(rows.numpy())
    raise_faults(about.flags)
    label = gains(about.rows)
    wrong = {
        "side": about.side >= len(SIDES_BY_CODE),
        "query": about.query < 0,
        "label": ~(np.isfinite(label) & (label >= 0)),
        "weight": ~(np.isfinite(weights(about.rows)) & (weights(about.rows) >= 0)),
        "count": about.count != 1,
    }
    for name, is_wrong in wrong.items():
        refuse(is_wrong, is_wrong, f"{name} of flat scores is not one that an update writes")
    return rows


def rank_entries(rows: Rows) -> tuple[Rows, int]:
    """Replace the entries among rows by their ranking tasks and queries without a relevant item.

    The entries of one side and index are the list of a query. The second result is the number of
    entries with a repeated sample id that differ from the one that stays.
    """
    is_entry = Columns(rows).flags & fault.ENTRY > 0
    if not is_entry.any():
        return rows, 0
    are_all = bool(is_entry.all())  # the common case, without copies of all scores
    entries, num_differing = _sorted_lists(rows if are_all else rows[is_entry])
    starts = np.flatnonzero(changes(Columns(entries).side, Columns(entries).query))
    tasks, num_candidates, has_item = _ranked(entries, starts)
    empty = _empty_queries(entries, starts, num_candidates)[~has_item]
    others = rows[:0] if are_all else rows[~is_entry]
    return np.concatenate([others, tasks, empty]), num_differing


def _sorted_lists(entries: Rows) -> tuple[Rows, int]:
    """Sort entries by list, without repeats of (side, sample id), of which the smallest stays."""
    about = Columns(entries)
    if (about.sample_id == ABSENT).all():  # half the CPU time of `compute`
        return _by_list(entries), 0

    content = (about.query, about.optimistic, about.gain_bits, about.group, about.weight_bits)
    order, starts = sorted_rows([about.side, about.sample_id, *content])
    named = about.sample_id[order] != ABSENT
    repeated = named & ~changes(about.side[order], about.sample_id[order])
    is_other = np.zeros(len(order), dtype=bool)
    is_other[starts] = True
    entries = entries[order[~repeated]]
    return _by_list(entries), int((repeated & is_other).sum())


def _by_list(entries: Rows) -> Rows:
    """Sort entries by list; loaders often yield them so."""
    side = Columns(entries).side
    query = Columns(entries).query
    is_next_side = side[:-1] < side[1:]
    is_next_query = (side[:-1] == side[1:]) & (query[:-1] <= query[1:])
    if (is_next_side | is_next_query).all():
        return entries
    order, _ = sorted_rows([side, query])
    return entries.T.take(order, axis=1).T


def _ranked(entries: Rows, starts: Rows) -> tuple[Rows, Rows, Any]:
    """Rank the relevant items of sorted lists; also return which lists have one, and the sizes."""
    about = Columns(entries)
    sizes = np.diff(np.append(starts, len(entries)))
    index = np.repeat(np.arange(len(starts)), sizes)
    score = np.ascontiguousarray(about.optimistic).view(np.float64)
    is_relevant = about.gain_bits != 0
    lists = torch.from_numpy(index)
    relevant = torch.from_numpy(is_relevant)
    ranks, place = rank_listed(torch.from_numpy(score), relevant, lists, None)
    tasks = entries[place.numpy()]
    found = Columns(tasks)
    found.ranks = ranks.columns.numpy().T
    assert ranks.flags is not None
    found.side_and_flags = found.side | (ranks.flags.numpy() << SIDE_BITS)
    return tasks, sizes, np.bincount(index[place.numpy()], minlength=len(starts)) > 0


def _empty_queries(entries: Rows, starts: Rows, num_candidates: Rows) -> Rows:
    """Write each list as a row of a query without a relevant item."""
    rows = entries[starts]
    about = Columns(rows)
    about.ranks = np.column_stack([num_candidates * 0, num_candidates * 0, num_candidates])
    about.side_and_flags = about.side | (fault.EMPTY << SIDE_BITS)
    about.sample_id = ABSENT
    about.gain_bits = ONE
    # bits of positive numbers are in the order of the numbers
    about.group = np.maximum.reduceat(Columns(entries).group, starts)
    about.weight_bits = np.maximum.reduceat(Columns(entries).weight_bits, starts)
    return rows


def set_empty_aside(rows: Rows) -> tuple[Rows, Rows]:
    """Return the ranking tasks among rows, and the queries without a relevant item.

    Of several rows of one query (side and name) the smallest stays, and none if relevant items of
    it are in other rows. Queries without a name are different queries.
    """
    is_empty = is_empty_query(rows)
    tasks = rows[~is_empty]
    empty, _ = canonical_rows(rows[is_empty])
    named = Columns(empty).query >= 0
    if named.any():
        Columns(empty).count[named] = 1
        together = Columns(np.concatenate([tasks, empty]))
        order, _ = sorted_rows([together.side, together.query, np.arange(len(together.rows))])
        first = np.zeros(len(order), dtype=bool)
        first[order] = changes(together.side[order], together.query[order])
        empty = empty[~named | first[len(tasks) :]]
    return tasks, empty
