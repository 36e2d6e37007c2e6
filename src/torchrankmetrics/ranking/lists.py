"""`ranks_of_lists`: ranks of relevant items in lists of ids, as vector indexes return them."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.decorators import eager
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.ranking.ranks import Ranks, trusted
from torchrankmetrics.ranking.tasks import QueryRows, read_gain
from torchrankmetrics.validation import check_int, shorten

Retrieved = Integers | Sequence[Integers]
"""Ids (B, k), best first, or a list with the ids of each query."""
Relevant = tuple[Integers, Integers] | Sequence[Collection[int] | Mapping[int, float] | Integers]
"""A list with one entry per query: ids, or a dict {id: label}; or a tuple (rows, ids)."""
NEVER_RETRIEVED = 1 << 60  # ranks above it, in lists of unknown size, contribute nothing
_NOTHING = -1  # id of an empty place, as in FAISS


@eager
def ranks_of_lists(
    retrieved: Retrieved, relevant: Relevant, num_candidates: int | None = None
) -> Ranks:
    """Rank the relevant items of every query in its list of retrieved ids.

    Relevant items that were not retrieved are tied below the list. Without ``num_candidates`` they
    contribute nothing to a metric, as in trec_eval. Of a repeated id the first place counts, and
    later ones are removed. The other relevant items of a query are among its candidates, as in
    ``rank_scores`` without ``exclude``. Waits for an accelerator.

    Args:
        retrieved (integers or list): (B, k) ids, best first; or a list of B vectors of ids, of any
            lengths. Ids are at least 0; -1 is an empty place, as in FAISS.
        relevant (list or tuple): a list with one entry per query, its relevant ids or a dict {id:
            label}, where 0 is not relevant; or a tuple (rows, ids) of two vectors (P,).
        num_candidates (int, default None): number N of candidates of every query, retrieved or not;
            for chance-adjusted views.

    Returns:
        ``Ranks`` with one entry per relevant item, in their order; their queries are the rows.

    Raises:
        TypeError: if ids are not integers.
        ValueError: if a shape is wrong, an id is negative, a relevant id is repeated, or
            num_candidates is smaller than the number of items of a query.
        IndexError: if rows of a tuple are outside [0, B).

    >>> import torch
    >>> from torchrankmetrics.ranking import ranks_of_lists
    >>> top = torch.tensor([[4, 2, 0], [1, 3, 2]])
    >>> ranks_of_lists(top, [[0, 4], [5]], num_candidates=100)
    Ranks(optimistic=[3, 1, 4], pessimistic=[3, 1, 100], num_candidates=[100, 100, 100])
    """
    listed = _read_retrieved(retrieved)
    row, item, gain = _read_relevant(relevant, len(listed), listed.device)
    ranks = rank_lists(listed, row, item, gain, num_candidates)
    # pairs list ranking tasks: a row without a pair is not a query
    return ranks if isinstance(relevant, tuple) else _with_empty_rows(ranks, num_candidates)


def rank_lists(
    listed: Tensor, row: Tensor, item: Tensor, gain: Tensor | None, num_candidates: int | None
) -> Ranks:
    """Rank items (P,) in the lists (B, k) of their rows (P,), where no item is in a row twice."""
    place, length = _places(listed, row, item)
    size = None
    if num_candidates is not None:
        missed = torch.bincount(row[place == 0], minlength=len(listed))
        _check_size(check_int("num_candidates", num_candidates, 1), length, missed)
        size = torch.full_like(length, num_candidates)
    return ranks_from_places(place, place, row, length, size, gain)


def ranks_from_places(
    low: Tensor,
    high: Tensor,
    row: Tensor,
    length: Tensor,
    num_candidates: Tensor | None,
    gain: Tensor | None,
) -> Ranks:
    """Return the ranks of items (P,) at places low..high of the lists of their rows (P,).

    An item at place 0 was not retrieved. It is tied below its list of a length (B,) or, if the
    numbers of candidates (B,) are unknown, so far down that it contributes nothing.
    """
    is_missed = low == 0
    if num_candidates is None:
        first = last = NEVER_RETRIEVED + _counted(row, is_missed)
        size = torch.full_like(row, fault.UNKNOWN)
    else:
        size = num_candidates[row]
        first = length[row] + 1
        last = size
    columns = (torch.where(is_missed, first, low), torch.where(is_missed, last, high), size)
    flags = torch.full_like(row, fault.RAW)
    none = row[:0]
    return trusted(torch.stack(columns), flags, QueryRows(row, len(length), none, none), gain)


def _with_empty_rows(ranks: Ranks, num_candidates: int | None) -> Ranks:
    """Return the ranks with the rows without a relevant item, which are queries, too."""
    assert ranks.rows is not None
    number = torch.bincount(ranks.rows.row, minlength=ranks.rows.number)
    empty = (number == 0).nonzero()[:, 0]
    size = torch.full_like(empty, fault.UNKNOWN if num_candidates is None else num_candidates)
    rows = ranks.rows._replace(empty=empty, num_candidates=size)
    return trusted(ranks.columns, ranks.flags, rows, ranks.gain)


def without_each_other(ranks: Ranks) -> Ranks:
    """Exclude the other items of a row from ranks of ``rank_lists`` among known numbers."""
    assert ranks.rows is not None
    row = ranks.rows.row
    num_rows = ranks.rows.number
    low, high, size = ranks.columns
    others = torch.bincount(row, minlength=num_rows)[row] - 1
    above = _number_above(row, low)
    is_below = low < high  # tied below the list
    columns = (low - above, high - torch.where(is_below, others, above), size - others)
    flags = torch.full_like(row, fault.FILTERED)
    return trusted(torch.stack(columns), flags, ranks.rows, ranks.gain)


def _counted(row: Tensor, chosen: Tensor) -> Tensor:
    """Number the chosen items of every row from 1; the numbers of others have no meaning."""
    owner, order = row.sort(stable=True)
    count = chosen[order].cumsum(0)
    before = count - chosen[order].long()
    number = torch.empty_like(count)
    number[order] = count - before[torch.searchsorted(owner, owner)]
    return number


def _number_above(row: Tensor, place: Tensor) -> Tensor:
    """Count the items of the same row at earlier places."""
    places, code = torch.unique(place, return_inverse=True)
    key = row * len(places) + code
    ordered = key.sort().values
    return torch.searchsorted(ordered, key) - torch.searchsorted(ordered, row * len(places))


def _places(listed: Tensor, row: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
    """Find the places (P,) of items in the lists of their rows, 0 if absent, and lengths (B,)."""
    number = listed.numel()
    ids, code = torch.unique(torch.cat([listed.flatten(), item]), return_inverse=True)
    rows = torch.arange(len(listed), device=listed.device).repeat_interleave(listed.shape[1])
    key, order = (rows * len(ids) + code[:number]).sort(stable=True)
    is_first = torch.ones_like(rows, dtype=torch.bool)
    is_first[order[1:]] = key[1:] != key[:-1]
    counts = is_first.view_as(listed) & (listed != _NOTHING)
    place = counts.cumsum(1).flatten()
    wanted = row * len(ids) + code[number:]
    if not number:
        return torch.zeros_like(wanted), counts.sum(1)
    at = torch.searchsorted(key, wanted).clamp(max=number - 1)
    return torch.where(key[at] == wanted, place[order[at]], 0), counts.sum(1)


def _check_size(num_candidates: int, length: Tensor, missed: Tensor) -> None:
    """Check that all items, in a list or not, are among the candidates."""
    needed = length + missed
    if (needed > num_candidates).any():
        i = int(needed.argmax())
        raise ValueError(
            f"num_candidates must count all items: row {i} has {length[i]} in its list and "
            f"{missed[i]} relevant ones outside, got {num_candidates}"
        )


def _read_retrieved(retrieved: Any) -> Tensor:
    """Read lists of ids as (B, k); shorter lists end with empty places."""
    if isinstance(retrieved, list | tuple):
        parts = [as_ids(part, f"retrieved[{i}]") for i, part in enumerate(retrieved)]
        if any(part.ndim != 1 for part in parts):
            raise ValueError("retrieved as a list must contain a vector of ids for each query")
        listed = torch.nn.utils.rnn.pad_sequence(parts, True, _NOTHING) if parts else None
        listed = torch.empty(0, 0, dtype=torch.int64, device="cpu") if listed is None else listed
    else:
        listed = as_ids(retrieved, "retrieved")
    if listed.ndim != 2:
        raise ValueError(
            f"retrieved must be (B, k) ids, best first, got shape {tuple(listed.shape)}; pass the "
            "ids of one query as [ids]"
        )
    if listed.numel() and int(listed.min()) < _NOTHING:
        raise ValueError(f"retrieved must contain ids of at least 0, got {int(listed.min())}")
    return listed


def _read_relevant(
    relevant: Relevant, num_rows: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Read relevant items as rows, ids and gains (None: all are 1)."""
    if isinstance(relevant, tuple):
        row, item = _read_pairs(relevant, num_rows)
        gain = None
    else:
        row, item, gain = _read_lists(relevant, num_rows)
    if len(item) and int(item.min()) < 0:
        raise ValueError(f"relevant must contain ids of at least 0, got {int(item.min())}")
    distinct = torch.unique(torch.stack((row, item)), dim=1)
    if distinct.shape[1] < len(row):
        raise ValueError("relevant must name every item of a query once, and a pair is repeated")
    return row.to(device), item.to(device), None if gain is None else gain.to(device)


def _read_pairs(relevant: tuple[Any, ...], num_rows: int) -> tuple[Tensor, Tensor]:
    parts = [as_ids(part, "relevant") for part in relevant]
    if len(parts) != 2 or parts[0].ndim != 1 or parts[0].shape != parts[1].shape:
        shapes = [tuple(part.shape) for part in parts]
        raise ValueError(
            f"relevant as a tuple must be (rows, ids), two vectors (P,), got shapes {shapes}; a "
            "list has one entry per query: [[0, 2], [1]]"
        )
    row, item = parts
    if len(row) and not 0 <= int(row.min()) <= int(row.max()) < num_rows:
        raise IndexError(
            f"rows of relevant must lie in [0, {num_rows}), got {int(row.min())} to "
            f"{int(row.max())}"
        )
    return row, item


def _read_lists(relevant: Any, num_rows: int) -> tuple[Tensor, Tensor, Tensor | None]:
    if not isinstance(relevant, Sequence) or len(relevant) != num_rows:
        size = f" of {len(relevant)}" if isinstance(relevant, Sequence) else ""
        raise ValueError(
            f"relevant must be a list with one entry for each of {num_rows} queries, or a tuple "
            f"(rows, ids); got {type(relevant).__name__}{size}{_as_lists(relevant)}"
        )
    parts = []
    for i, part in enumerate(relevant):
        ids = sorted(part) if isinstance(part, Set) else part
        ids = list(part) if isinstance(part, Mapping) else ids
        parts.append(as_ids(ids, f"relevant[{i}]"))
        if parts[i].ndim != 1:
            raise ValueError(f"relevant[{i}] must be a vector of ids, got {shorten(part)}")
    length = torch.tensor([len(part) for part in parts], dtype=torch.int64, device="cpu")
    row = torch.arange(num_rows, device="cpu").repeat_interleave(length)
    item = torch.cat([row[:0], *(part.cpu() for part in parts)])
    if not any(isinstance(part, Mapping) for part in relevant):
        return row, item, None
    labels = []
    for part, ids in zip(relevant, parts, strict=True):
        labels.append(list(part.values()) if isinstance(part, Mapping) else [1.0] * len(ids))
    label = torch.tensor(np.concatenate(labels), dtype=torch.float64, device="cpu")
    return row[label != 0], item[label != 0], read_gain(label[label != 0], "relevant")


def _as_lists(relevant: Any) -> str:
    """Return what to pass instead of an array or a tensor."""
    if not isinstance(relevant, np.ndarray | Tensor):
        return ""
    if relevant.ndim == 1:
        return "; for one id per query pass relevant[:, None].tolist()"
    return "; pass relevant.tolist()"
