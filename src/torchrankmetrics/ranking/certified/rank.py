"""The door to exact ranks: tasks in any order, on any device."""

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified.candidates import Candidates
from torchrankmetrics.ranking.certified.cascade import Cascade
from torchrankmetrics.ranking.certified.precisions import precisions
from torchrankmetrics.ranking.counting import choose_intervals, chosen
from torchrankmetrics.ranking.excluded import Exclude, check_exclude
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import Target, check_target, flags_of

SIMILARITIES = ("dot", "cosine", "l2")
_WIDTH = 4096


def rank_exactly(
    queries: Tensor,
    candidates: Candidates,
    target: Target,
    exclude: Exclude,
    restriction: Tensor | None,
    *,
    similarity: str,
    chunk_size: int | None,
    counting: str,
    kept: bool,
) -> Ranks:
    """Rank as ``rank_embeddings`` does, by known answers (pairs or slices) and a restriction at once if both are given.

    ``kept`` says that the candidates serve more calls, and keep what is worked out for them.
    """
    candidates.check_unchanged()
    shape = (len(queries), len(candidates))
    tasks = check_target(target, shape, queries.device)
    excluded = check_exclude(exclude, shape, queries.device)
    if restriction is not None:
        excluded = excluded._replace(restriction=restriction)
    flags = flags_of(tasks, excluded)
    row, column, order = tasks.row, tasks.column, None
    if row is None:
        row = torch.arange(len(column), device=column.device)
    else:
        row, order = row.sort(stable=True)
        column = column[order]
    compiled = chosen(queries, counting) == "numba"
    with torch.no_grad():
        counts = Cascade(
            queries.detach().resolve_neg(),
            candidates,
            row,
            column,
            excluded,
            similarity=similarity,
            width=min(chunk_size or _WIDTH, len(candidates)),
            precisions=precisions(queries.shape[1], len(queries), on_cpu=queries.is_cpu, compiled=compiled, kept=kept),
            intervals=choose_intervals(queries, counting),
            keep=kept,
            counting=counting,
        ).counts()
    if order is not None:
        counts = torch.empty_like(counts).index_copy_(1, order, counts)
    return Ranks.from_counts(counts, flags)
