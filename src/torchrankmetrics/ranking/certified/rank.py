"""The door to exact ranks: tasks in any order, on any device."""

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified.candidates import Candidates
from torchrankmetrics.ranking.certified.cascade import Cascade
from torchrankmetrics.ranking.certified.left_out import LeftOut
from torchrankmetrics.ranking.certified.precisions import precisions
from torchrankmetrics.ranking.certified.problem import Problem
from torchrankmetrics.ranking.certified.queries import Queries
from torchrankmetrics.ranking.counting import choose_intervals, chosen
from torchrankmetrics.ranking.excluded import Exclude, check_exclude
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import Target, check_target, flags_of, with_rows

SIMILARITIES = ("dot", "cosine", "l2")
_WIDTH = 8192


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
    say_rows: bool = False,
) -> Ranks:
    """Rank as ``rank_embeddings`` does, by known answers (pairs or slices) and a restriction at once if both are given.

    ``kept`` says that the candidates serve more calls, and keep what is worked out for them; ``say_rows`` that the
    ranks are to say which answers are of one query.
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
    width = min(chunk_size or _WIDTH, len(candidates))
    on_cpu, compiled = queries.is_cpu, chosen(queries, counting) == "numba"
    ladder = precisions(queries.shape[1], len(queries), on_cpu=on_cpu, compiled=compiled, kept=kept)
    has_bias = similarity == "l2" or candidates.bias is not None
    with torch.no_grad():
        problem = Problem(
            Queries(queries.detach().resolve_neg(), has_bias),
            candidates,
            similarity,
            row,
            column,
            LeftOut(excluded, row, column, shape, width),
            choose_intervals(queries, counting),
            counting,
        )
        counts = Cascade(problem, candidates.tiles(similarity, width, kept), width, ladder).counts()
    if order is not None:
        counts = torch.empty_like(counts).index_copy_(1, order, counts)
    ranks = Ranks.from_counts(counts, flags)
    return with_rows(ranks, tasks, excluded, len(queries)) if say_rows else ranks
