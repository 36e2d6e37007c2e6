"""One update (scores, ranks or a table) as one block of rows with ten int64 columns."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import (
    Array,
    Integers,
    Numbers,
    as_ids,
    as_tensor,
    check_device,
    read_scores,
)
from torchrankmetrics.ranking.ranks import Ranks, rank_dense, trusted
from torchrankmetrics.ranking.tasks import Exclude, QueryRows, Target, is_by_row
from torchrankmetrics.table.columns import (
    ABSENT,
    ONE,
    PLACES,
    SIDE_BITS,
    SIDE_CODES,
    WIDTH,
    Columns,
    HasRows,
    name_by_content,
)
from torchrankmetrics.table.task_facts import TaskFacts, facts_of_rows, shared_facts
from torchrankmetrics.validation import TaskSide, check_choice, is_int, one_number

_RANKS = PLACES["ranks"]
_BEHIND_RANKS = slice(PLACES["side_and_flags"], None)
# the columns after the ranks of a task of which only the side is known
_UNKNOWN = {
    side: np.array([[code, ABSENT, ABSENT, ONE, 1, ABSENT, ONE]]).T
    for side, code in SIDE_CODES.items()
}

Preds = Tensor | Array | Ranks | HasRows
"""Input of ``update``: scores (B, N) as a tensor or an array, ranks, or a table of them."""


def make_block(
    preds: Preds,
    target: Target | None,
    exclude: Exclude,
    facts: TaskFacts,
    *,
    indexes: Integers | None = None,
    backend: str = "auto",
    name: str = "preds",
) -> Tensor:
    """Turn scores (``name`` in errors), ranks or a table, and facts of tasks, into rows (n, 10)."""
    # Lightning evaluates in inference mode; rows outlive it, so they must be ordinary tensors
    if torch.is_inference_mode_enabled():
        with torch.inference_mode(False):
            return make_block(
                preds, target, exclude, facts, indexes=indexes, backend=backend, name=name
            )
    if isinstance(preds, Ranks | HasRows):
        return _block_of_ranks(
            preds, facts, {"target": target, "exclude": exclude, "indexes": indexes}
        )
    preds = read_scores(preds, name)
    if target is None:
        raise ValueError(
            "target is missing: pass (B,) columns of the targets with scores (B, N); "
            "existing ranks are passed as Ranks(ranks, None, num_candidates) or as a RankTable"
        )
    if indexes is not None:
        from torchrankmetrics.table.entries import read_entries

        ranks, facts = read_entries(preds, target, indexes, exclude, facts, backend)
        return rows_of(ranks, facts, flag_repeats=True)
    if preds.ndim == 1:
        raise ValueError(
            f"{name} must be (B, N): one row of candidate scores per query; got "
            f"{tuple(preds.shape)}. Flat scores (T,) need indexes (T,), the query of each; ranks "
            "go in as Ranks(ranks, None, num_candidates)"
        )
    by_query = None if facts.query is None else True
    ranks = rank_dense(preds, target, exclude, by_query=by_query, backend=backend, name=name)
    return _block_of_scores(ranks, preds, facts, is_by_row(target))


def _block_of_ranks(preds: Ranks | HasRows, facts: TaskFacts, arguments: dict[str, Any]) -> Tensor:
    """Return the rows of ranks, or of a table; other ``arguments`` must be None."""
    if isinstance(preds, HasRows):
        arguments = arguments | facts._asdict()
    if names := [name for name, value in arguments.items() if value is not None]:
        raise ValueError(
            f"{' and '.join(names)} must not be given with a {type(preds).__name__}: it has them"
        )
    if isinstance(preds, HasRows):
        return preds.rows.clone()
    return rows_of(preds, facts, flag_repeats=True)


def _block_of_scores(
    ranks: Ranks, preds: Tensor, facts: TaskFacts, facts_are_by_row: bool
) -> Tensor:
    """Return the rows of ranked scores, with facts of the rows of scores, or of the tasks."""
    if ranks.rows is None:
        return rows_of(ranks, facts, flag_repeats=True)
    names = ("query", "group", "weight") if facts_are_by_row else ("query",)
    of_tasks = facts_of_rows(facts, ranks.rows.row, preds, *names)
    of_empty = None
    if len(ranks.rows.empty):
        own = facts._replace(sample_id=None, gain=None)
        of_empty = facts_of_rows(own, ranks.rows.empty, preds, *names)
    return rows_of(ranks, of_tasks, of_empty, flag_repeats=True)


def rows_of(
    ranks: Ranks,
    facts: TaskFacts,
    of_empty: TaskFacts | None = None,
    *,
    flag_repeats: bool = False,
) -> Tensor:
    """Write ranks and facts of their tasks as int64 (tasks, 10) rows.

    With ``flag_repeats``, rows whose sample id came before are flagged. The last rows are the
    queries without a relevant item, with the facts ``of_empty``.
    """
    if not isinstance(ranks, Ranks):
        raise TypeError(f"ranks must be a Ranks, got {type(ranks).__name__}")
    if facts.side is not None:
        check_choice("side", facts.side, SIDE_CODES)
    per_task = _columns_of(ranks, facts)
    flag_repeats = flag_repeats and facts.sample_id is not None
    if ranks.columns.is_cpu:
        block = _block_on_cpu(ranks.columns, facts.side, per_task)
        flag_repeats = flag_repeats and has_repeats(Columns(block.numpy()).sample_id)
    else:
        block = _unknown_on(facts.side, ranks.columns.device).repeat(len(ranks), 1)
        Columns(block).ranks = ranks.columns.T
        for name, column in per_task.items():
            setattr(Columns(block), name, column)
    if flag_repeats:  # on an accelerator always: to look for them would wait for the device
        _mark_repeats(block)
    if ranks.rows is None:
        return block
    if facts.query is None:
        name_by_content(block, ranks.rows.row, ranks.rows.number)
    if not len(ranks.rows.empty):
        return block
    return torch.cat([block, _empty_block(ranks.rows, of_empty or shared_facts(facts))])


def _empty_block(rows: QueryRows, facts: TaskFacts) -> Tensor:
    """Write queries without a relevant item as rows (n, 10), with ranks of 0."""
    zero = torch.zeros_like(rows.num_candidates)
    columns = torch.stack((zero, zero, rows.num_candidates))
    return rows_of(trusted(columns, torch.full_like(zero, fault.EMPTY)), facts)


def _columns_of(ranks: Ranks, facts: TaskFacts) -> dict[str, Tensor]:
    """Read the columns (tasks,) of rows that are not the same for all tasks, except the ranks."""
    ranked = ranks.columns
    flags = ranks.flags
    if flags is not None and ranked.is_cpu and not flags.any():
        flags = None  # the common case
    columns: dict[str, Tensor] = {}
    if facts.group is not None:
        columns["group"] = _integers(facts.group, "group", ranked)
    if facts.sample_id is not None:
        columns["sample_id"] = _integers(facts.sample_id, "sample_id", ranked)
    if facts.query is not None:
        names = columns["query"] = _integers(facts.query, "query", ranked)
        flags = fault.check(
            names < 0, names, "query must contain ids of at least 0", fault.QUERY, flags
        )
    elif flags is not None and ranks.rows is None:
        flags = flags & ~(fault.FILTERED | fault.RAW)
    if facts.weight is not None:
        columns["weight_bits"], flags = _bits(facts.weight, "weight", ranked, flags)
    if facts.gain is not None:
        columns["gain_bits"], flags = _bits(facts.gain, "gain", ranked, flags)
        if ranks.gain is not None:
            raise ValueError(
                "gain must not be given with a graded target, whose labels are the gains"
            )
        # a label of 0 drops its task
        weight_bits = columns.get("weight_bits", ONE)
        columns["weight_bits"] = torch.where(columns["gain_bits"] == 0, 0, weight_bits)
    elif ranks.gain is not None:
        columns["gain_bits"] = ranks.gain.view(torch.int64)
    if flags is not None:
        columns["side_and_flags"] = (flags << SIDE_BITS) | SIDE_CODES[facts.side]
    return columns


def _block_on_cpu(ranked: Tensor, side: TaskSide | None, per_task: dict[str, Tensor]) -> Tensor:
    """Write rows with NumPy, whose calls cost a fifth of torch's."""
    numbers = ranked.numpy()
    # in memory by columns, as an analysis reads them
    columns = np.empty((WIDTH, numbers.shape[1]), numbers.dtype)
    columns[_RANKS] = numbers
    columns[_BEHIND_RANKS] = _UNKNOWN[side]
    for name, column in per_task.items():
        columns[PLACES[name]] = column.numpy()
    return torch.from_numpy(columns.T)


def has_repeats(ids: npt.NDArray[np.int64]) -> bool:
    """Whether a number is in ids (n,) twice."""
    # loaders yield ids in order; `all` takes twice as long as a count
    if not np.count_nonzero(ids[1:] <= ids[:-1]):
        return False
    ids = np.sort(ids)  # np.unique takes 13 times as long
    return bool((ids[1:] == ids[:-1]).any())


def _mark_repeats(block: Tensor) -> None:
    """Flag the rows of one update whose sample id came before, in place, without a device wait."""
    columns = Columns(block)
    # tasks of no weight are dropped, and those without an id repeat none
    ids = torch.where(columns.weight_bits.view(torch.float64) == 0, ABSENT, columns.sample_id)
    ids, order = ids.sort(stable=True)
    repeated = torch.zeros_like(ids)
    repeated[order[1:]] = ((ids[1:] == ids[:-1]) & (ids[1:] != ABSENT)) * (
        fault.REPEATED << SIDE_BITS
    )
    columns.side_and_flags |= repeated


@cache
def _unknown_on(side: TaskSide | None, device: torch.device) -> Tensor:
    row = torch.empty(1, WIDTH, dtype=torch.int64, device=device)
    for index, value in enumerate([0, 0, 0, *_UNKNOWN[side].ravel().tolist()]):
        row[:, index].fill_(value)  # made there: a copy would wait for the device
    return row


def _integers(values: Integers, name: str, ranked: Tensor) -> Tensor:
    """Integers of the ranked tasks, as many and on the device of their ranks (3, tasks)."""
    if is_int(values) and name != "sample_id":
        if not ABSENT <= values < -ABSENT:
            raise ValueError(f"{name} must fit in int64, got {values}")
        return torch.full_like(ranked[0], values)
    return _of_tasks(as_ids(values, name), name, ranked, isinstance(values, Tensor))


def _bits(
    values: Numbers, name: str, ranked: Tensor, flags: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Bits of weights or gains as float64; and the flags, as ``fault.check``."""
    if not isinstance(values, Tensor) and (number := one_number(values)) is not None:
        values = torch.full_like(ranked[0], float(number), dtype=torch.float64)
    tensor = as_tensor(values, name)
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must contain real numbers, got {tensor.dtype}")
    tensor = _of_tasks(tensor, name, ranked, isinstance(values, Tensor))
    tensor = tensor.to(torch.float64) + 0.0  # -0.0 and 0.0 have different bits
    wrong = ~(tensor >= 0) | tensor.isinf()
    flags = fault.check(
        wrong, tensor, f"{name} must be finite and not negative", fault.WEIGHT, flags
    )
    return tensor.view(torch.int64), flags


def _of_tasks(tensor: Tensor, name: str, ranked: Tensor, was_tensor: bool) -> Tensor:
    """One number for each ranked task; arrays are moved to their device, tensors must be on it."""
    n = ranked.shape[1]
    device = ranked.device
    if tensor.ndim == 0 and name != "sample_id":
        tensor = tensor.expand(n)
    if tensor.shape != (n,):
        raise ValueError(
            f"{name} must be (tasks,) = ({n},), one entry per ranking task; got "
            f"{tuple(tensor.shape)}"
        )
    if was_tensor:
        check_device(tensor, name, device, "the ranks")
    return tensor.to(device)
