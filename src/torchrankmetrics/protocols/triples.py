"""rank_triples: a whole filtered evaluation of any model, each query scored once for all its answers."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from torchrankmetrics.checks import check_int
from torchrankmetrics.protocols.known_triples import KnownTriples, as_triples, excluded_by
from torchrankmetrics.ranking.arrays import Integers
from torchrankmetrics.ranking.excluded import KnownSlices
from torchrankmetrics.ranking.scores import rank_filtered
from torchrankmetrics.sides import EntitySide
from torchrankmetrics.table.rank_table import RankTable

ScoreFunction = Callable[[Tensor, Tensor], Tensor]
LookUp = Callable[[Tensor, Tensor], KnownSlices]

_FIRST = 32
_SCORES_CPU, _SCORES_ACCELERATOR = 1 << 22, 1 << 28
_SHARE = 8


def rank_triples(
    score_tails: ScoreFunction | None,
    score_heads: ScoreFunction | None,
    triples: Integers,
    known: KnownTriples | None,
    *,
    candidates: Integers | None = None,
    batch_size: int | None = None,
    counting: str = "auto",
) -> RankTable:
    """Rank both sides of every triple among all entities that are not known answers, with a progress bar.

    Without ``batch_size`` the first 32 queries tell N and the dtype; then a batch has up to 2^22 scores on the CPU and
    2^28 on an accelerator, and at most an eighth of the free memory. Out of memory, a batch is halved and tried again.

    Args:
        score_tails: (heads (B,), relations (B,)) -> scores (B, N), higher is better; None: tails are not ranked.
        score_heads: (relations (B,), tails (B,)) -> scores (B, N); None: heads are not ranked.
        triples: (n, 3) integers [head, relation, tail], on the device the functions take.
        known: the true triples of every split to filter by; None: raw ranks.
        candidates: entities that are candidates at all, as ids (m,) or bool (N,); None: all. Scores are still (B, N).
        batch_size: queries scored at once.
        counting: as ``rank_scores`` takes it.

    Returns:
        One row per side and triple, in the order of the triples, tails first: side, the relation as group, the index of
        the triple as sample id.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores``; ValueError if scores are not (B, N).

    >>> scores = torch.tensor([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1], [0.0, 0.0, 1.0]])
    >>> table = rank_triples(lambda h, r: scores[h], None, torch.tensor([[0, 0, 2]]), None)
    >>> table.ranks
    Ranks(optimistic=[2], pessimistic=[2], num_candidates=[3])
    """
    tasks = as_triples(triples, "triples")
    if batch_size is not None:
        check_int("batch_size", batch_size, 1)
    if score_tails is None and score_heads is None:
        raise ValueError("score_tails and score_heads are both None: there is nothing to rank")
    head, relation, tail = tasks.unbind(1)
    sides: list[_Side] = []
    if score_tails is not None:
        sides.append(_Side("tail", score_tails, tasks[:, [0, 1]], tail, None if known is None else known.tails))
    if score_heads is not None:
        sides.append(_Side("head", score_heads, tasks[:, [1, 2]], head, None if known is None else known.heads))
    tables = []
    with tqdm(total=sum(len(side.queries) for side in sides), desc="ranking", unit="query") as bar, torch.no_grad():
        for side in sides:
            tables.append(side.rank(relation, candidates, batch_size, counting, bar))
    return RankTable.concatenate(tables)


class _Side:
    """The unique queries of one side, and the tasks of each."""

    def __init__(
        self, name: EntitySide, score: ScoreFunction, queries: Tensor, own: Tensor, known: LookUp | None
    ) -> None:
        self.name, self.score, self.own, self.known = name, score, own, known
        self.queries, self.row = torch.unique(queries, dim=0, return_inverse=True)
        self.order = self.row.argsort(stable=True)
        numbers = torch.bincount(self.row, minlength=len(self.queries))
        self.border = [0, *numbers.cumsum(0).tolist()]

    def rank(
        self, relation: Tensor, candidates: Integers | None, batch_size: int | None, counting: str, bar: Any
    ) -> RankTable:
        tables, first = [], 0
        size = batch_size or _FIRST
        while first < len(self.queries):
            last = min(first + size, len(self.queries))
            try:
                table, shape, itemsize = self._rank_batch(first, last, relation, candidates, counting)
            except (RuntimeError, MemoryError) as error:
                if size == 1 or not _is_out_of_memory(error):
                    raise
                size = batch_size = max(1, (last - first) // 2)
                continue
            tables.append(table)
            bar.update(last - first)
            first = last
            size = batch_size or _fitting(shape[1], itemsize, relation.device)
        rows = RankTable.concatenate(tables).rows
        return RankTable(rows[self.order.argsort()] if len(rows) else rows)

    def _rank_batch(
        self, first: int, last: int, relation: Tensor, candidates: Integers | None, counting: str
    ) -> tuple[RankTable, torch.Size, int]:
        left, right = self.queries[first:last].unbind(1)
        scores = self.score(left, right)
        if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != last - first:
            got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(f"score_{self.name}s must return scores ({last - first}, N), got {got}")
        tasks = self.order[self.border[first] : self.border[last]]
        ranks = rank_filtered(
            scores,
            (self.row[tasks] - first, self.own[tasks]),
            None if self.known is None else self.known(left, right),
            excluded_by(candidates, scores.shape[1], scores.device),
            counting,
        )
        table = RankTable.from_ranks(ranks, side=self.name, group=relation[tasks], sample_id=tasks)
        return table, scores.shape, scores.element_size()


def _fitting(num_columns: int, itemsize: int, device: torch.device) -> int:
    """How many queries to score at once: bounded by what a cache, or a launch, is worth, and by the free memory."""
    most = (_SCORES_CPU if device.type == "cpu" else _SCORES_ACCELERATOR) // num_columns
    return max(1, min(most, _free_memory(device) // (_SHARE * num_columns * itemsize)))


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "cpu" and "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 1 << 30  # not told by this system


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text
