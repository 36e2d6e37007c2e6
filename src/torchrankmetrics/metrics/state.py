"""`RowOwner`: how a metric and a collection append, save and load rows."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.buffer import LOCK, RowBuffer
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.warnings import warn_of_input, warn_of_nothing, warn_of_ties
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.table.columns import Columns, HasRows, has_entries
from torchrankmetrics.table.task_facts import NO_FACTS, TaskFacts

if TYPE_CHECKING:
    from torchrankmetrics.metrics.metric import RankMetric

KEY = "rows"  # of the state in a state_dict
_WRITER = "process"


class RowOwner(nn.Module):
    """How a metric and a collection append, save and load rows."""

    rows: RowBuffer
    compute_on_cpu: bool
    _has_warned_of_masks = False
    _has_warned_of_ties = False
    _persistent: dict[str, bool]

    @property
    def _first(self) -> "RankMetric":
        """The metric itself, or the first member of a collection.

        Another collection may own the rows of the member.
        """
        return self  # type: ignore[return-value]

    def _members(self) -> list["RankMetric"]:
        """The metric itself, or the members of a collection."""
        return [self._first]

    def _note_needs(self, measures: Sequence[Measure]) -> None:
        """Note, once for all updates, which facts of ranking tasks the measures need."""
        of_queries = [one for one in measures if one.definition.of_tasks is None]
        self._has_queries = bool(of_queries)
        self._forbids_empty = any(one.empty_queries == "error" for one in of_queries)
        self._needs_side = next((one.key for one in measures if one.side != "both"), None)
        self._needs_group = any(one.average == "macro" for one in measures)
        self._has_views = any(one.view != "base" for one in measures)

    def _warn_of(self, analysis: Analysis, measures: Iterable[Measure]) -> None:
        """Warn of what values depend on; once of ties, whose text differs in every epoch.

        One batch may be empty, or have few ranking tasks of which some tie.
        """
        warn_of_input(analysis)
        if self.rows.is_batch:
            return
        if self._first.update_called:  # else torchmetrics warns
            warn_of_nothing(analysis, measures)
        if not self._has_warned_of_ties:
            self._has_warned_of_ties = warn_of_ties(measures, analysis)

    def _check_queries(self, block: Tensor, is_plain_scores: bool = False) -> None:
        if block.is_cpu:  # compute checks the rows of an accelerator
            from torchrankmetrics.table.queries import check_queries

            check_queries(block.numpy(), is_plain_scores, self._forbids_empty)

    def _append(self, block: Tensor, updates: int = 1, is_plain_scores: bool = False) -> None:
        if self._has_queries:
            self._check_queries(block, is_plain_scores)
        if self.compute_on_cpu and not block.is_cpu:
            with torch.inference_mode(False):  # rows outlive inference mode
                block = block.cpu()
        with LOCK:
            self._own_rows().add([block], updates)

    def _own_rows(self) -> RowBuffer:
        """Return the buffer to append to; needs the lock."""
        rows = self.rows.owned_by(self)
        if rows is not self.rows:
            self.rows = rows
        return rows

    @contextmanager
    def _batch_alone(self, *, keep: bool = True) -> Iterator[None]:
        """Let `update` and `compute` inside use the rows of one batch alone.

        Afterwards the earlier rows are restored.

        Args:
            keep (bool, default True): whether the rows of the batch are stored after them.
        """
        self._check_writable()
        members = self._members()
        synchronized = [one._to_sync for one in members]
        with LOCK:
            earlier = self._own_rows()
            earlier.compact()
            number = len(earlier)
            updates = earlier.updates

        def end(new: RowBuffer) -> None:
            with LOCK:
                earlier[number:] = (
                    new  # instead of `extend`: a second call repairs an interrupted one
                )
                earlier.updates = updates + new.updates
                self._refer_to(earlier)
            for one, to_sync in zip(members, synchronized, strict=True):
                vars(one)["_to_sync"] = to_sync

        try:
            for one in members:
                vars(one)["_to_sync"] = one.dist_sync_on_step
            self._refer_to(earlier.for_batch())
            yield
            end(self.rows if keep else RowBuffer())
        except BaseException:
            end(RowBuffer())
            raise

    def _refer_to(self, rows: RowBuffer) -> None:
        """Refer to another buffer of the same owner."""
        raise NotImplementedError

    def _check_not_flat(self, is_flat: bool) -> None:
        """Raise for flat scores if equal rows are merged.

        They are stored as entries that are not ranked yet.
        """
        if self.rows.merges and is_flat:
            raise ValueError(
                "storage='counts' cannot store flat scores (indexes), which are ranked at compute; "
                "use storage='ranks'"
            )

    def _merge(self, rows: Tensor, updates: int = 1) -> None:
        rows = rows.to(self._first.device)
        self._check_not_flat(has_entries(rows))
        self._validate(HasRows(rows), NO_FACTS)
        self._append(rows, updates)

    def _validate(self, preds: Any, facts: TaskFacts, *others: Any) -> None:
        """Raise for an update that does not fit, before anything is ranked."""
        self._check_writable()
        if (
            self._needs_side
            and facts.side is None
            and not (isinstance(preds, HasRows) and preds.has_sides())
        ):
            raise ValueError(
                "side must be passed to update ('head', 'tail' or 'relation'), or be in every row "
                f"of its RankTable: {self._needs_side!r} uses the ranking tasks of one side only"
            )
        if (
            self._needs_group
            and facts.group is None
            and not (isinstance(preds, HasRows) and preds.has_groups())
        ):
            raise ValueError(
                "group must be passed to update, or be in every row of its RankTable, for "
                "average='macro'"
            )

    def _check_writable(self) -> None:
        """Raise if rows may not be appended; in a collection, claim the buffer again."""
        if self._first._is_synced:
            raise TorchMetricsUserError(
                "update of a synced metric would be lost by unsync(); call unsync() first"
            )

    def _replace(self, rows: Tensor) -> None:
        raise NotImplementedError

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._persistent[KEY]:
            destination[prefix + KEY] = self._first.rows.as_one()
            getattr(destination, "_metadata", {}).setdefault(prefix[:-1], {})[_WRITER] = (
                _rank_and_world()[0]
            )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        metadata: dict[str, Any],
        strict: bool,
        *lists: list[str],
    ) -> None:
        # torchmetrics accepts any object as a state, and loads the rows of one process on every one
        if prefix + KEY in state_dict:
            try:
                rows = validated(state_dict.pop(prefix + KEY))
                self._check_not_flat(has_entries(rows))
                if self._has_queries:
                    self._check_queries(rows)
            except (TypeError, ValueError, IndexError) as error:
                lists[-1].append(f"{prefix}{KEY}: {error}")
            else:
                rank, world = _rank_and_world()
                self._replace(rows if metadata.get(_WRITER, 0) % world == rank else rows[:0])
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, *lists)


def value_device(device: torch.device) -> torch.device:
    """Return the device of the values.

    It is the CPU for MPS, which has no float64, and for metrics on "meta".
    """
    return torch.device("cpu") if device.type in ("mps", "meta") else device


def as_values(numbers: Sequence[float], device: torch.device) -> tuple[Tensor, ...]:
    """Return numbers as 0-d float64 tensors on the device of their metrics."""
    values = torch.from_numpy(np.array(numbers, dtype=np.float64))  # torch reads lists slowly
    return values.to(value_device(device)).unbind()


def validated(rows: Tensor | Sequence[Tensor]) -> Tensor:
    """Return rows from a file or another program as one (n, 10) tensor.

    Raises for rows that no update can make.
    """
    from torchrankmetrics.table.entries import check_entries
    from torchrankmetrics.table.rank_table import RankTable

    blocks = [rows] if isinstance(rows, Tensor) else rows
    joined = RankTable.concatenate([RankTable(block) for block in blocks]).rows
    is_entry = Columns(joined).flags & fault.ENTRY > 0
    tasks = RankTable.from_numpy(RankTable(joined[~is_entry]).to_numpy()).rows
    return torch.cat([tasks, check_entries(joined[is_entry].cpu())]) if is_entry.any() else tasks


def _rank_and_world() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
