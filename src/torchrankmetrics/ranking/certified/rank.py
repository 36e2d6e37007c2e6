"""The door to exact ranks: tasks in any order, on any device."""

from typing import NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified.candidates import Candidates
from torchrankmetrics.ranking.certified.cascade import Cascade
from torchrankmetrics.ranking.certified.excluded_tiles import ExcludedTiles
from torchrankmetrics.ranking.certified.precisions import precisions
from torchrankmetrics.ranking.certified.problem import Answers, Problem
from torchrankmetrics.ranking.certified.queries import Queries
from torchrankmetrics.ranking.counting import choose_intervals, chosen
from torchrankmetrics.ranking.excluded import Exclude, Excluded, check_exclude
from torchrankmetrics.ranking.parallel.part import Part
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.remaining import said_of
from torchrankmetrics.ranking.scores import Target, Tasks, check_target, flags_of, with_rows

SIMILARITIES = ("dot", "cosine", "l2")
_WIDTH = 16384


def rank_exactly(
    queries: Tensor,
    candidates: Candidates,
    target: Target,
    exclude: Exclude | Excluded,
    *,
    similarity: str,
    chunk_size: int | None,
    backend: str,
    kept: bool,
    say_rows: bool = False,
    part: Part | None = None,
) -> Ranks:
    """Rank as ``rank_embeddings`` does, with what is excluded in one form or in several.

    ``kept`` says that the candidates serve more calls, and keep what is worked out for them; ``say_rows`` that the
    ranks are to say which answers are of one query; ``part`` which of all candidates these are, if not all.
    """
    if part is None:
        part = Part(0, len(candidates), len(candidates))
    width = max(1, min(chunk_size or _WIDTH, len(candidates)))

    def read() -> _Asked:
        candidates.check_unchanged()
        chosen(queries, backend)
        return _read(queries, target, exclude, width, part)

    def said(asked: _Asked) -> dict[str, object]:
        embeddings, bias = candidates.embeddings, candidates.bias
        return {
            "candidates": (embeddings.dtype, embeddings.shape[1:]),
            "bias": None if bias is None else bias.dtype,
            "queries": queries,
            "target": torch.stack([asked.row, asked.column]),
            **said_of(asked.excluded, part.total),
        }

    with torch.no_grad():
        asked = part.agree(read, said)
        tables, place = part.rows(asked.column, (candidates.embeddings, candidates.bias))

        def count() -> Tensor:
            problem = Problem(
                Queries(queries.detach().resolve_neg(), similarity == "l2" or candidates.bias is not None),
                candidates,
                similarity,
                asked.row,
                part.local(asked.column),
                _answers(candidates, tables, place),
                asked.tiles,
                choose_intervals(queries, backend),
                backend,
            )
            compiled = chosen(queries, backend) == "numba"
            ladder = precisions(problem.width, len(queries), on_cpu=queries.is_cpu, compiled=compiled)
            return Cascade(problem, candidates.tiles(similarity, width, kept), ladder, kept).counts()

        counts = part.add_up(count, asked.tiles.total)
    if asked.order is not None:
        counts = torch.empty_like(counts).index_copy_(1, asked.order, counts)
    ranks = Ranks.from_compared(counts, asked.flags)
    return with_rows(ranks, asked.tasks, asked.excluded, len(queries)) if say_rows else ranks


class _Asked(NamedTuple):
    """Tasks as they were given, and in ascending order of their rows."""

    tasks: Tasks
    excluded: Excluded
    flags: Tensor | None
    row: Tensor
    column: Tensor
    order: Tensor | None
    tiles: ExcludedTiles


def _read(queries: Tensor, target: Target, exclude: Exclude | Excluded, width: int, part: Part) -> _Asked:
    shape = (len(queries), part.total)
    tasks = check_target(target, shape, queries.device)
    excluded = check_exclude(exclude, shape, queries.device)
    flags = flags_of(tasks, excluded)
    row, column, order = tasks.row, tasks.column, None
    if row is None:
        row = torch.arange(len(column), device=column.device)
    else:
        row, order = row.sort(stable=True)
        column = column[order]
    tiles = ExcludedTiles(excluded, row, column, len(queries), width, part)
    return _Asked(tasks, excluded, flags, row, column, order, tiles)


def _answers(candidates: Candidates, tables: list[Tensor | None], place: Tensor) -> Answers:
    embeddings, bias = tables
    assert embeddings is not None
    beside = embeddings is not candidates.embeddings
    return Answers(embeddings, bias, place, place + len(candidates) if beside else place)
