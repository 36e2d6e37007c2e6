"""The row state of a metric for torchmetrics: reset, sync, casts and `state_dict`."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import ref

import torch
from lightning_utilities import apply_to_collection
from torch import Tensor
from torchmetrics import Metric

from torchrankmetrics.metrics.store import REWRITING, RowStore
from torchrankmetrics.table.queries import check_queries
from torchrankmetrics.table.rank_table import RankTable

KEY = "rows"
_WRITER = "process"


def sign(state_dict: Any, prefix: str) -> None:
    """Note beside the state which process writes its rows."""
    metadata = getattr(state_dict, "_metadata", {})
    metadata.setdefault(prefix[:-1], {})[_WRITER] = _place()[0]


def checked(rows: Tensor | Sequence[Tensor], has_queries: bool) -> Tensor:
    """Give rows from outside as one (n, 10) tensor on the CPU; ``has_queries``: for metrics of queries.

    Raises:
        TypeError: if they are not int64 tensors.
        ValueError, IndexError: if they are not (n, 10), (n, 9) or (n, 8), or hold what no update keeps.
    """
    tables = [RankTable(block) for block in ([rows] if isinstance(rows, Tensor) else rows)]
    checked_rows = RankTable.from_numpy(RankTable.concatenate(tables).to_numpy()).rows
    if has_queries:
        check_queries(checked_rows)
    return checked_rows


def loaded(
    state_dict: dict[str, Any], prefix: str, metadata: dict[str, Any], errors: list[str], has_queries: bool
) -> Tensor | None:
    """Take the rows out of a state; None if there are none, or if they are refused, which is added to the errors.

    Of several processes that load one checkpoint, the one that wrote it takes the rows and the others start without:
    they come back once.
    """
    if prefix + KEY not in state_dict:
        return None
    try:
        rows = checked(state_dict.pop(prefix + KEY), has_queries)
    except (TypeError, ValueError, IndexError) as error:
        errors.append(f"{prefix}{KEY}: {error}")
        return None
    rank, world = _place()
    return rows if metadata.get(_WRITER, 0) % world == rank else rows[:0]


def _place() -> tuple[int, int]:
    """Rank of this process, and how many there are."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


class RowState(Metric):
    """A metric whose one state is ``rows``, a list of int64 (n_i, 10) blocks."""

    _holder: ref[Any] | None
    _has_queries: bool

    @property
    def rows(self) -> RowStore:
        """The blocks of rows, the state of the metric."""
        store: RowStore = self.__dict__["_rows"]  # asked in every update; vars() takes twice as long
        return store

    @rows.setter
    def rows(self, blocks: Iterable[Tensor]) -> None:
        if isinstance(blocks, RowStore):
            blocks.shared = True  # so torchmetrics ties the metrics of a compute group
        vars(self)["_rows"] = blocks if isinstance(blocks, RowStore) else RowStore(blocks)

    @property
    def _computed(self) -> Any:
        """What ``compute`` gave for these rows: an update need not tell each metric that shares them."""
        value, version = vars(self)["_answer"]
        return value if version is self.rows.version else None

    @_computed.setter
    def _computed(self, value: Any) -> None:
        vars(self)["_answer"] = (value, None if value is None else self.rows.version)

    @property
    def _value_device(self) -> torch.device:
        if self.device.type == "mps":
            return torch.device("cpu")  # MPS has no float64
        # a metric built on the meta device may be updated with real scores
        return self.rows[-1].device if self.device.type == "meta" and self.rows else self.device

    @contextmanager
    def sync_context(self, *args: Any, should_unsync: bool = True, **kwargs: Any) -> Iterator[None]:
        """Synchronise inside, and restore the rows of this process afterwards even if something raises."""
        self.sync(*args, **kwargs)
        try:
            yield
        finally:
            self.unsync(should_unsync=self._is_synced and should_unsync)

    def _wrap_update(self, update: Callable[..., None]) -> Callable[..., None]:
        counted = super()._wrap_update(update)

        @functools.wraps(update)
        def wrapped(*args: Any, **kwargs: Any) -> None:
            count = self._update_count
            try:
                counted(*args, **kwargs)
            except Exception:
                self._update_count = count  # torchmetrics counts before it calls
                raise

        return wrapped

    def _copy_state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}  # the list itself: blocks are never written in place

    def _apply(self, fn: Callable[..., Any], exclude_state: Sequence[str] = "") -> "RowState":
        values = self._computed, self._forward_cache
        self._computed = self._forward_cache = None
        super()._apply(fn, (*exclude_state, "rows"))
        # rows and values follow the device and no dtype
        if not self.compute_on_cpu and any(block.device != self.device for block in self.rows):
            with torch.inference_mode(False):
                self.rows.rewrite([block.to(self.device) for block in self.rows])
        moved = [apply_to_collection(value, Tensor, Tensor.to, self._value_device) for value in values]
        self._computed, self._forward_cache = moved
        return self

    def _move_list_states_to_cpu(self) -> None:
        # only what is not there yet, in place: a new list per update would be quadratic and untie members
        with REWRITING:
            for i in range(len(self.rows) - 1, -1, -1):
                if self.rows[i].is_cpu:
                    break
                self.rows[i] = self.rows[i].cpu()

    def __getstate__(self) -> dict[str, Any]:
        # a copy is free, for a copied collection takes its own again, and a BootStrapper holds copies
        return {**super().__getstate__(), "_holder": None, "_is_resampled": True}

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._persistent["rows"]:
            sign(destination, prefix)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: dict[str, Any], strict: bool, *lists: list[str]
    ) -> None:
        self._take_in(state_dict, prefix, metadata, lists[-1], self._has_queries)
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, *lists)

    def _take_in(
        self, state_dict: dict[str, Any], prefix: str, metadata: dict[str, Any], errors: list[str], has_queries: bool
    ) -> bool:
        """Take the rows out of a saved state, and say whether there were some."""
        rows = loaded(state_dict, prefix, metadata, errors, has_queries)
        if rows is None:
            return False
        self.rows = [rows.to(self.device)]
        self._update_count = max(self._update_count, 1)
        return True
