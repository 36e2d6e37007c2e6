"""One update (scores, ranks or a table) as one block of rows with ten int64 columns."""

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import Array, Integers, Numbers, as_ids, as_tensor, read_scores
from torchrankmetrics.ranking.counting import chosen
from torchrankmetrics.ranking.exclude import Exclude
from torchrankmetrics.ranking.forms import is_by_row
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import rank_dense
from torchrankmetrics.ranking.tasks import Target
from torchrankmetrics.ranking.tolerance import Tolerance
from torchrankmetrics.table.columns import (
    ABSENT,
    ONE,
    PLACES,
    SIDE_BITS,
    SIDE_CODES,
    WIDTH,
    Columns,
    HasRows,
    Rows,
    name_by_content,
)
from torchrankmetrics.validation import TaskSide, check_choice, is_int, one_number

_BEHIND_RANKS = slice(PLACES["side_and_flags"], None)
# what stands behind the ranks of a task of which nothing but the side is known
_UNKNOWN = {side: np.array([[code, ABSENT, ABSENT, ONE, 1, ABSENT, ONE]]).T for side, code in SIDE_CODES.items()}


Preds = Tensor | Array | Ranks | HasRows
"""What ``update`` takes: scores (B, N) as a tensor or an array, ranks, or a table of them."""


def make_block(
    preds: Preds,
    target: Target | None,
    exclude: Exclude,
    *,
    side: TaskSide | None = None,
    group: Integers | None = None,
    query: Integers | None = None,
    weight: Numbers | None = None,
    sample_id: Integers | None = None,
    gain: Numbers | None = None,
    indexes: Integers | None = None,
    backend: str = "auto",
    tolerance: float | Tolerance = 0.0,
    name: str = "preds",
) -> Tensor:
    """Turn scores, ranks or a table, and what is known of their tasks into one int64 (tasks, 10) block of rows.

    Arguments and errors as ``RankMetric.update``; what ranks or a table have already must not be given. ``name`` is
    what errors call scores by.
    """
    # asked in every update: keywords by name, for a dict of them that is passed on costs as much as a column
    if torch.is_inference_mode_enabled():  # where Lightning evaluates; rows are ordinary tensors that outlive it
        about: dict[str, Any] = {"side": side, "group": group, "query": query, "weight": weight, "sample_id": sample_id}
        with torch.inference_mode(False):
            about.update(gain=gain, indexes=indexes, backend=backend, tolerance=tolerance, name=name)
            return make_block(preds, target, exclude, **about)
    if one_number(tolerance) != 0 and (indexes is not None or isinstance(preds, Ranks | HasRows)):
        what = "indexes: flat scores are ranked by sorting them" if indexes is not None else "ranks that are there"
        raise ValueError(f"tolerance is for scores (B, N) and must not be given with {what}")
    if isinstance(preds, Ranks):
        if target is not None or exclude is not None or indexes is not None:
            _refuse_given(preds, target=target, exclude=exclude, indexes=indexes)
        ranks = preds
    elif isinstance(preds, HasRows):
        if not (target is exclude is indexes is side is group is weight is sample_id is query is gain is None):
            options = {"target": target, "exclude": exclude, "indexes": indexes, "side": side, "group": group}
            _refuse_given(preds, **options, weight=weight, sample_id=sample_id, query=query, gain=gain)
        return preds.rows.clone()
    else:
        preds = read_scores(preds, name)
        if target is None:
            raise ValueError(
                "target is missing: pass (B,) columns of the true candidates beside scores (B, N); ranks that are "
                "there go in as Ranks(ranks, None, num_candidates) or as a RankTable"
            )
        if indexes is not None:
            if backend != "auto":
                chosen(preds, backend)  # refused alike, although flat scores are ranked by one sort
            from torchrankmetrics.ranking.flat import rank_flat

            ranks, place = rank_flat(preds, target, indexes, exclude)
            group, weight = _at(group, "group", place, preds), _at(weight, "weight", place, preds)
            sample_id, query = _at(sample_id, "sample_id", place, preds), _at(query, "query", place, preds)
        elif preds.ndim == 1:
            raise ValueError(
                f"{name} must be (B, N): one row of candidate scores per query; got {tuple(preds.shape)}. Flat scores "
                "(T,) need indexes (T,), the query of each; ranks go in as Ranks(ranks, None, num_candidates)"
            )
        else:
            named = query is not None
            ranks = rank_dense(preds, target, exclude, named=named, backend=backend, tolerance=tolerance, name=name)
            if ranks.rows is not None:
                row = ranks.rows[0]
                query = _at(query, "query", row, preds)
                if is_by_row(target):
                    group, weight = _at(group, "group", row, preds), _at(weight, "weight", row, preds)
    about = {"side": side, "group": group, "weight": weight, "sample_id": sample_id, "query": query, "gain": gain}
    return rows_of(ranks, **about, flag_repeats=True)


def _at(values: Numbers | None, name: str, index: Tensor, preds: Tensor) -> Numbers | None:
    """Read what is said of every row of scores, (B,), for tasks in these rows; None and one number stay."""
    if values is None or (values.ndim == 0 if isinstance(values, Tensor) else one_number(values) is not None):
        return values
    tensor = as_tensor(values, name)
    if tensor.shape != preds.shape[:1]:
        raise ValueError(
            f"{name} must be {tuple(preds.shape[:1])}, one entry per row of preds {tuple(preds.shape)}; "
            f"got {tuple(tensor.shape)}"
        )
    return tensor.to(index.device)[index]


def _refuse_given(preds: Ranks | HasRows, **options: Any) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        names = " and ".join(given)
        raise ValueError(f"{names} must not be given with a {type(preds).__name__}: it has them already")


def rows_of(
    ranks: Ranks,
    *,
    side: TaskSide | None = None,
    group: Integers | None = None,
    weight: Numbers | None = None,
    sample_id: Integers | None = None,
    query: Integers | None = None,
    gain: Numbers | None = None,
    flag_repeats: bool = False,
) -> Tensor:
    """Write ranks and what is known of their tasks as an int64 (tasks, 10) block.

    Args:
        ranks: the ranks.
        side: "head", "tail", "relation" or None.
        group: (tasks,) integers, or one int for all.
        weight: (tasks,) numbers >= 0, or one for all; float64 bits in the row. A zero weight drops its task.
        sample_id: (tasks,) integers; repeats of (side, sample id) count once.
        query: (tasks,) integers >= 0, or one for all: tasks of one (side, query) are the answers of one query. None:
            those of one row of scores are, if the ranks know their rows; else each is a query by itself.
        gain: (tasks,) labels >= 0, or one for all; float64 bits in the row. A label of 0 drops its task. None: those
            of the ranks, else 1.
        flag_repeats: flag the rows whose sample id came before in these: rows of one update.

    Raises:
        TypeError: if groups, sample ids or queries are not integers, or weights and gains not numbers.
        ValueError: if the side is unknown, a shape or device differs, an id does not fit in int64, a query is negative,
            a weight or gain is negative, infinite, NaN, all weights are zero, or ranks of a graded target get gains (on
            an accelerator values are checked at ``compute``).
    """
    if not isinstance(ranks, Ranks):
        raise TypeError(f"ranks must be a Ranks, got {type(ranks).__name__}")
    if side is not None:
        check_choice("side", side, SIDE_CODES)
    ranked, flags = ranks.columns, ranks.flags
    on_cpu = ranked.is_cpu
    if flags is not None and on_cpu and not flags.any():
        flags = None  # the common case: all columns but the ranks are constant
    per_task: dict[str, Tensor] = {}
    if group is not None:
        per_task["group"] = _integers(group, "group", ranked, scalar=True)
    if sample_id is not None:
        per_task["sample_id"] = _integers(sample_id, "sample_id", ranked, scalar=False)
    shared = query is None and ranks.rows is not None
    if query is None and flags is not None and not shared:
        flags = flags & ~(fault.FILTERED | fault.RAW)
    if query is not None:
        per_task["query"], wrong = _queries(query, ranked)
        if wrong is not None:
            flags = wrong * fault.QUERY if flags is None else flags | wrong * fault.QUERY
    if weight is not None:
        number, wrong = _numbers(weight, "weight", ranked)
        per_task["weight_bits"] = number.view(torch.int64)
        if wrong is not None:
            wrong |= (number == 0).all()
            flags = wrong * fault.WEIGHT if flags is None else flags | wrong * fault.WEIGHT
        elif len(number) and not number.any():
            raise ValueError(f"weight must not be zero for every task of an update, got {len(number)} zeros")
    if gain is not None:
        if ranks.gain is not None:
            raise ValueError("gain must not be given with a graded target, whose labels are the gains")
        number, wrong = _numbers(gain, "gain", ranked)
        per_task["gain_bits"] = number.view(torch.int64)
        per_task["weight_bits"] = torch.where(number == 0, 0, per_task.get("weight_bits", ONE))
        if wrong is not None:
            flags = wrong * fault.WEIGHT if flags is None else flags | wrong * fault.WEIGHT
    elif ranks.gain is not None:
        per_task["gain_bits"] = ranks.gain.view(torch.int64)
    if flags is not None:
        per_task["side_and_flags"] = (flags << SIDE_BITS) | SIDE_CODES[side]
    if not on_cpu:
        block = _unknown_on(side, ranked.device).repeat(len(ranks), 1)
        on_device = Columns(block)
        on_device.ranks = ranked.T
        for name, column in per_task.items():
            setattr(on_device, name, column)
        if flag_repeats and sample_id is not None:
            _mark_repeats(block)  # to ask first would wait for the device
        if shared and ranks.rows is not None:
            name_by_content(block, *ranks.rows)
        return block
    numbers = ranked.numpy()  # NumPy's calls cost a fifth of torch's
    columns = np.empty((WIDTH, numbers.shape[1]), dtype=np.int64)  # in memory by columns, as an analysis reads them
    columns[PLACES["ranks"]], columns[_BEHIND_RANKS] = numbers, _UNKNOWN[side]
    for name, column in per_task.items():
        columns[PLACES[name]] = column.numpy()
    block = torch.from_numpy(columns.T)
    if flag_repeats and sample_id is not None and _has_repeats(columns[PLACES["sample_id"]]):
        _mark_repeats(block)
    if shared and ranks.rows is not None:
        name_by_content(block, *ranks.rows)
    return block


def _has_repeats(ids: Rows) -> bool:
    if not np.count_nonzero(ids[1:] <= ids[:-1]):  # loaders deal ids in order
        return False
    ids = np.sort(ids)
    return bool(np.count_nonzero(ids[1:] == ids[:-1]))


def _mark_repeats(block: Tensor) -> None:
    """Flag, in place, the rows of one update whose sample id came before in it; nothing waits for the device."""
    columns = Columns(block)
    # tasks of no weight are no tasks, and those without an id repeat none
    ids = torch.where(columns.weight_bits.view(torch.float64) == 0, ABSENT, columns.sample_id)
    ids, order = ids.sort(stable=True)
    repeated = torch.zeros_like(ids)
    repeated[order[1:]] = ((ids[1:] == ids[:-1]) & (ids[1:] != ABSENT)) * (fault.REPEATED << SIDE_BITS)
    columns.side_and_flags |= repeated


@cache
def _unknown_on(side: TaskSide | None, device: torch.device) -> Tensor:
    row = torch.empty(1, WIDTH, dtype=torch.int64, device=device)
    for index, value in enumerate([0, 0, 0, *_UNKNOWN[side].ravel().tolist()]):
        row[:, index].fill_(value)  # made there: a copy would wait for the device
    return row


def _integers(values: Integers, name: str, ranked: Tensor, scalar: bool) -> Tensor:
    """Integers of the ranked tasks, whose columns (3, tasks) tell how many they are and where."""
    if is_int(values) and scalar:
        if not ABSENT <= values < -ABSENT:
            raise ValueError(f"{name} must fit in int64, got {values}")
        return torch.full_like(ranked[0], values)
    tensor = as_ids(values, name)
    tensor = tensor.expand(ranked.shape[1]) if tensor.ndim == 0 and scalar else tensor
    _check_place(tensor, name, ranked, from_tensor=isinstance(values, Tensor))
    return tensor if isinstance(values, Tensor) else tensor.to(ranked.device)


def _queries(values: Integers, ranked: Tensor) -> tuple[Tensor, Tensor | None]:
    """Names of the queries; and, on an accelerator, which are wrong."""
    query = _integers(values, "query", ranked, scalar=True)
    wrong = query < 0
    if not query.is_cpu:
        return query, wrong
    if wrong.any():
        first = int(wrong.nonzero()[0])
        raise ValueError(f"query must hold ids of at least 0, got {int(query[first])} for task {first}")
    return query, None


def _numbers(values: Numbers, name: str, ranked: Tensor) -> tuple[Tensor, Tensor | None]:
    """Weights or gains as float64; and, on an accelerator, which are wrong."""
    if not isinstance(values, Tensor) and (number := one_number(values)) is not None:
        values = torch.full_like(ranked[0], float(number), dtype=torch.float64)
    tensor = as_tensor(values, name)
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must hold real numbers, got {tensor.dtype}")
    tensor = tensor.expand(ranked.shape[1]) if tensor.ndim == 0 else tensor
    _check_place(tensor, name, ranked, from_tensor=isinstance(values, Tensor))
    tensor = tensor.to(device=ranked.device, dtype=torch.float64) + 0.0  # -0.0 and 0.0 have different bits
    wrong = ~(tensor >= 0) | tensor.isinf()
    if not tensor.is_cpu:
        return tensor, wrong
    if wrong.any():
        first = int(wrong.nonzero()[0])
        raise ValueError(f"{name} must be finite and not negative, got {float(tensor[first])} for task {first}")
    return tensor, None


def _check_place(tensor: Tensor, name: str, ranked: Tensor, from_tensor: bool) -> None:
    n, device = ranked.shape[1], ranked.device
    if tensor.shape != (n,):
        raise ValueError(f"{name} must be (tasks,) = ({n},), one entry per ranking task; got {tuple(tensor.shape)}")
    if from_tensor and tensor.device != device:
        raise ValueError(f"{name} must be on the device of the ranks, {device}; got {tensor.device}")
