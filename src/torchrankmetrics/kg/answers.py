"""Top-k candidates of every query of an evaluation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import Excluded
from torchrankmetrics.rendering import Rendered, Tabular
from torchrankmetrics.rendering.tabular import Names, name_of
from torchrankmetrics.table.rank_table import RankTable


@dataclass(frozen=True, eq=False)
class SideAnswers:
    """The best candidates of the queries of one side, best first, on the CPU."""

    # (Q, 2) int64, each once: [head, relation] where tails are ranked, [relation, tail] for heads
    queries: Tensor
    ids: Tensor  # (Q, k) int64, the candidates; -1 if a query has fewer
    scores: Tensor  # (Q, k) float64, the scores of the model; NaN for missing candidates
    correct: Tensor  # (Q, k) bool, whether the candidate is a target of the query


@dataclass(frozen=True, eq=False)
class TopAnswers(Rendered):
    """The best candidates of every query, as triples; ``to_pandas`` and ``to_csv`` list them.

    Known positives are filtered as in the ranks, except the targets of the query, which are marked
    as correct. Candidates of equal score are sorted by id; NaN scores come last.

    Attributes:
        sides: by "tail" and "head": queries (Q, 2), and (Q, k) ids (-1: missing), scores and
            whether they are correct.
        entities, relations: names of the ids, see ``named``.
    """

    sides: Mapping[str, SideAnswers]
    entities: Names = None
    relations: Names = None

    def named(self, entities: Names = None, relations: Names = None) -> "TopAnswers":
        """Return a copy whose tables show names, given by id, instead of ids."""
        return replace(self, entities=entities, relations=relations)

    def __len__(self) -> int:
        return sum(len(side.queries) for side in self.sides.values())

    def __repr__(self) -> str:
        return f"TopAnswers({len(self)} queries, sides: {', '.join(self.sides)})"

    __str__ = __repr__  # not the whole table

    def tabular(self) -> Tabular:
        """Return the table with one row per candidate; "side" is the predicted side."""
        rows: list[tuple[str | int | float, ...]] = []
        for side, found in self.sides.items():
            query, place = (found.ids >= 0).nonzero(as_tuple=True)
            first, second = found.queries[query].T.tolist()
            ids = found.ids[query, place].tolist()
            triple = (first, second, ids) if side == "tail" else (ids, first, second)
            labels = []
            for kind, numbers in zip(("entities", "relations", "entities"), triple, strict=True):
                labels.append(
                    [name_of(number, getattr(self, kind), kind, "id") for number in numbers]
                )
            rest = place + 1, found.scores[query, place], found.correct[query, place].int()
            rows += zip([side] * len(ids), *labels, *(part.tolist() for part in rest), strict=True)
        return Tabular.named(
            ("side", "head", "relation", "tail", "position", "score", "correct"), rows, keys=4
        )


class AnsweredTable(RankTable):
    """The ranks of ``rank_triples``, with its best candidates, which files of ranks do not contain."""

    answers: TopAnswers | None = None
    """The best candidates of the queries, if ``top_k`` was given."""


def cells_of(
    shape: tuple[int, int], targets: tuple[Tensor, Tensor], excluded: Excluded
) -> tuple[Tensor, Tensor]:
    """Mark the cells of scores (B, N) that are not candidates, and the targets (row, column): bool (B, N) each."""
    correct = torch.zeros(shape, dtype=torch.bool, device=targets[0].device)
    out = torch.zeros_like(correct)
    if excluded.slices is not None:
        out[tuple(excluded.slices.pairs())] = True
    correct[targets] = True
    out &= ~correct
    if excluded.columns is not None:
        out |= excluded.columns
    return out, correct


class BestCandidates:
    """Collects the k best candidates of the queries of a side, batch after batch.

    ``original`` turns scores, higher is better, into the scores of the model.
    """

    def __init__(self, k: int, original: Callable[[Tensor], Tensor]) -> None:
        self.k, self.original = k, original
        dtypes = torch.int64, torch.float64, torch.bool
        self.parts = [[torch.empty(0, k, dtype=dtype, device="cpu") for dtype in dtypes]]

    def add(self, scores: Tensor, out: Tensor, correct: Tensor) -> None:
        """Add the queries of a batch from scores (B, N), higher is better, and the cells of ``cells_of``."""
        out, correct = out.to(scores.device), correct.to(scores.device)
        floating = scores.is_floating_point()
        lowest = -torch.inf if floating else torch.iinfo(scores.dtype).min
        values = scores.masked_fill(out | scores.isnan() if floating else out, lowest)
        k = min(self.k, scores.shape[1])
        bar = values.topk(k, dim=1).values[:, -1:]
        above, level = values > bar, (values == bar) & ~out
        # among ties at the last position the smallest ids
        taken = above | (level & (level.cumsum(1) <= k - above.sum(1, keepdim=True)))
        row, column = taken.nonzero(as_tuple=True)
        order = values[row, column].argsort(descending=True, stable=True)
        order = order[row[order].argsort(stable=True)]
        column, count = column[order], taken.sum(1)
        cells = row, torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
        found = self.original(scores[row, column])
        shape, part = (len(scores), self.k), []
        for missing, values in (
            (-1, column),
            (torch.nan, found.double()),
            (False, correct[row, column]),
        ):
            whole = torch.full(shape, missing, dtype=values.dtype, device=row.device)
            part.append(whole.index_put_(cells, values).cpu())
        self.parts.append(part)

    def finish(self, queries: Tensor) -> SideAnswers:
        """Return the candidates of all batches."""
        return SideAnswers(
            queries.cpu(), *(torch.cat(part) for part in zip(*self.parts, strict=True))
        )
