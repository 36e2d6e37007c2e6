"""The shared list of row blocks, its cached analysis and gather, and `update`."""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.wrappers import BootStrapper

from torchrankmetrics.eager import eager
from torchrankmetrics.errors import told, warn
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.ranking.arrays import Integers, Numbers
from torchrankmetrics.ranking.exclude import Exclude
from torchrankmetrics.ranking.shards import group_device
from torchrankmetrics.ranking.tasks import Target
from torchrankmetrics.ranking.tolerance import Tolerance
from torchrankmetrics.table.blocks import Preds, make_block
from torchrankmetrics.table.columns import ABSENT, Columns, empty_rows
from torchrankmetrics.validation import TaskSide

_FRAMES = 16  # from here to the wrapper, with arithmetic of metrics between
_IN_STEP = (Tensor, int, float, type(None))


def refuse_what_is_not_resampled(
    preds: Any, target: Any, exclude: Any, group: Any, weight: Any, sample_id: Any, query: Any, indexes: Any
) -> None:
    """Refuse, inside torchmetrics' ``BootStrapper``, what it leaves as it is or whose rows are no tasks.

    Raises:
        ValueError: naming the argument. Pairs of two rows would be drawn as if they were scores: a wrong number.
    """
    if not isinstance(preds, Tensor):
        odd = "preds"
    elif not isinstance(target, Tensor) or (target.ndim != 1 and target.dtype != torch.bool):
        odd = "target"
    elif query is not None or indexes is not None:  # a query that is drawn twice would have its answers twice
        odd = "query" if indexes is None else "indexes"
    elif exclude is not None and not (
        isinstance(exclude, Tensor) and exclude.dtype == torch.bool and exclude.ndim == 2
    ):
        odd = "exclude"
    elif not (isinstance(group, _IN_STEP) and isinstance(weight, _IN_STEP) and isinstance(sample_id, _IN_STEP)):
        odd = "what is said of tasks (group, weight, sample_id)"
    else:
        return
    if _inside_boot_strapper():
        raise ValueError(
            f"{odd} cannot be resampled by BootStrapper, which draws along the first dimension of tensors: pass preds "
            "(B, N), target (B,), exclude as bool (B, N) and the rest as (B,) tensors, or use "
            "RankCollection.confidence_intervals, which needs none of this"
        )


def _inside_boot_strapper() -> bool:
    """Whether the wrapper is among the callers: nothing else tells a metric that it is wrapped."""
    frame = sys._getframe(2)
    for _ in range(_FRAMES):
        if frame.f_code is BootStrapper.update.__code__:
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


Gather = Callable[..., list[Tensor]]
# Held where several threads could replace or copy the same blocks. One for all metrics, so that they can be pickled.
REWRITING = threading.Lock()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=REWRITING.acquire, after_in_parent=REWRITING.release, after_in_child=REWRITING.release)


class Version:
    """Identity of the content of a store. Copies and pickles keep it, so that an answer stays with what it was of."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Version":
        return self


class _Known:
    """What was worked out from the content of a store, by it or by a copy of it."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self.analysis: Analysis | None = None
        self.gathered: list[tuple[Gather, Any, RowStore]] = []


class RowStore(list[Tensor]):
    """Blocks of rows, int64 (n_i, 10), that are never written in place; torchmetrics ties metrics by sharing the list.

    Args:
        blocks: the first blocks.
    """

    def __init__(self, blocks: Iterable[Tensor] = ()) -> None:
        super().__init__(blocks)
        self.shared = False  # whether another metric may hold this list: then only a collection appends to it
        self._known: _Known | None = None  # nothing since the last change

    def append(self, block: Tensor) -> None:
        """Take a block; one without rows is a change, too: every process updates, some of them with nothing."""
        list.append(self, block)  # asked in every update: super() and what nobody may ask for cost
        self._known = None

    def extend(self, blocks: Iterable[Tensor]) -> None:
        """Take several blocks."""
        super().extend(blocks)
        self._known = None

    def __iadd__(self, blocks: Iterable[Tensor]) -> "RowStore":  # type: ignore[override, misc]  # tensors
        self.extend(blocks)
        return self

    @property
    def version(self) -> Version:
        """Identity of the content: another after every change."""
        return self._knowledge().version

    def rewrite(self, blocks: Iterable[Tensor], count: int | None = None) -> None:
        """Replace the first ``count`` blocks (None: all) by moved or merged ones of the same tasks; caches stay."""
        list.__setitem__(self, slice(count), blocks)

    def as_one(self, device: torch.device) -> Tensor:
        """Give the blocks as one (n, 10) tensor; typed and of the right width without data."""
        return torch.cat(list(self)) if self else empty_rows(device)

    def analysis(self) -> Analysis:
        """Analyse the rows, once for all who hold or copied them."""
        known = self._knowledge()
        if known.analysis is None:
            known.analysis = Analysis(self)
        return known.analysis

    def gathered(self, local: Callable[[], Tensor], device: torch.device, gather: Gather, group: Any) -> "RowStore":
        """Give the rows of all processes, gathered once for all who hold or copied these.

        Between two gathers every process changes its rows (with none, if it has none) or none does: as everywhere in
        torchmetrics, a process that gathers waits for all others.

        Args:
            local: gives the rows of this process as one (n, 10) tensor.
            device: that of the metric: of the same kind on every process, which that of its blocks need not be.
            gather: ``gather_all_tensors`` or a replacement: (tensor, group=...) -> list of tensors.
            group: the process group.
        """
        gathered = self._knowledge().gathered
        for known, known_group, rows in gathered:
            if known is gather and known_group is group:
                return rows
        mine = local()
        if gather is gather_all_tensors:
            mine = mine.to(group_device(group, device))
        parts = list(gather(mine.contiguous(), group=group))
        rows = RowStore([torch.cat(parts)])
        if len(parts) > 1 and (Columns(rows[0]).sample_id == ABSENT).any():
            warn(  # the same text in every epoch, so that Python shows it once
                f"ranking tasks from {len(parts)} processes have no sample_id: samples that a sampler repeats count "
                "twice, and torch's DistributedSampler repeats some unless their number is divisible by the number of "
                "processes or drop_last is True; pass sample_id= to update"
            )
        gathered.append((gather, group, rows))
        return rows

    def __deepcopy__(self, memo: dict[int, Any]) -> "RowStore":
        other = RowStore(self)
        other._known = self._knowledge()  # the same tasks: what is worked out serves both
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return RowStore, (list(self),), {"_known": _Known(self.version)}

    def _knowledge(self) -> _Known:
        known = self._known
        if known is None:  # another thread may append at any time
            known = self._known = _Known(Version())
        return known


def _changing(name: str) -> Callable[..., Any]:
    """The method of a list, after which nothing is known of a store, even if it failed half way."""
    change = getattr(list, name)

    @wraps(change)
    def changed(self: RowStore, *args: Any, **kwargs: Any) -> Any:
        try:
            return change(self, *args, **kwargs)
        finally:
            self._known = None

    return changed


for _name in ("__setitem__", "__delitem__", "__imul__", "clear", "insert", "pop", "remove", "reverse", "sort"):
    setattr(RowStore, _name, _changing(_name))  # what a metric of a user's own may do to its rows, as to any list


class TakesBatches:
    """What ``update`` gives batches to, one metric or a collection of them: it ranks them and keeps their rows once."""

    _is_resampled = False  # whether a BootStrapper may hold it

    def _admit(self, preds: Preds, side: str | None, group: Integers | None) -> TaskSide | None:
        """Refuse what does not fit before anything is ranked, and give the side by the name that rows have for it."""
        raise NotImplementedError

    def _keep(self, block: Tensor) -> None:
        """Take the rows of a batch."""
        raise NotImplementedError

    @eager
    @told
    def update(
        self,
        preds: Preds,
        target: Target | None = None,
        *,
        exclude: Exclude = None,
        side: TaskSide | str | None = None,
        group: Integers | None = None,
        query: Integers | None = None,
        weight: Numbers | None = None,
        sample_id: Integers | None = None,
        indexes: Integers | None = None,
        backend: str = "auto",
        tolerance: float | Tolerance = 0.0,
    ) -> None:
        """Rank a batch and keep the ranks, or take ranks that are there.

        Args:
            preds: (B, N) scores, a tensor or an array, higher is better, never modified; or a ``Ranks``, then without
                target and exclude; or a ``RankTable``, then alone. A metric of one side, or a macro average, asks all
                rows of the table for theirs: an accelerator is waited for. With ``indexes``, (T,) scores.
            target: as in ``rank_scores``, several answers a row too; bool (T,) with ``indexes``.
            exclude: as in ``rank_scores``, padding too; bool (T,) with ``indexes``.
            side: "head", "tail" or "relation", what was predicted.
            group: (tasks,) integers, or one int; with labels (B, N) or lists (B,), one per row; (T,) with ``indexes``.
            query: (B,) integers >= 0 or one; (tasks,) with ranks, (T,) with ``indexes``. Its answers may come apart;
                then exclude lists them all, the own one too, or none. None: the answers of a row are a whole query.
            weight: numbers >= 0, or one, of the shape of group; a zero drops its task.
            sample_id: (tasks,) integers, (T,) with ``indexes``; repeats of (side, sample id) count once.
            indexes: (T,) integers, the query of each of flat scores, as in torchmetrics' retrieval; every query whole.
            backend: as in ``rank_scores``.
            tolerance: as in ``rank_scores``; not with ranks or ``indexes``.

        Raises:
            TypeError, ValueError, IndexError: for bad input, before the state changes.
        """
        known = self._admit(preds, side, group)
        if self._is_resampled:
            refuse_what_is_not_resampled(preds, target, exclude, group, weight, sample_id, query, indexes)
        if isinstance(preds, Tensor) and preds.is_meta:  # a tensor without values has no ranks, as in torchmetrics
            self._keep(empty_rows(preds.device))
            return
        block = make_block(
            preds,
            target,
            exclude,
            indexes=indexes,
            backend=backend,
            tolerance=tolerance,
            side=known,
            group=group,
            weight=weight,
            sample_id=sample_id,
            query=query,
        )
        self._keep(block)


def as_values(numbers: Sequence[float], device: torch.device) -> tuple[Tensor, ...]:
    """Put numbers on the device of their metrics as 0-d float64 tensors."""
    return torch.from_numpy(np.array(numbers, dtype=np.float64)).to(device).unbind()  # torch reads lists slowly
