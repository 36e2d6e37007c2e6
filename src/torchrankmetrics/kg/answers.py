"""Top-k candidates of every query of an evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from torchrankmetrics.rendering import Rendered, Tabular
from torchrankmetrics.rendering.tabular import Names, name_of
from torchrankmetrics.table.rank_table import RankTable

# columns of queries and targets in the order of tables, with the names that their ids have
_NAMES = {
    "query": "queries",
    "left": "left",
    "head": "entities",
    "relation": "relations",
    "tail": "entities",
    "right": "right",
    "time": "times",
    "answer": "entities",
}


@dataclass(frozen=True, eq=False)
class SideAnswers:
    """The best candidates of the queries of one side, best first, on the CPU.

    ``ids[row]`` has those of every ranking task: one line for each triple, instead of each query.

    >>> import torch
    >>> from torchrankmetrics.kg import rank_alignment
    >>> left = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    >>> right = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> table = rank_alignment([[0, 0], [1, 1]], left, right, top_k=1)
    >>> tails = table.answers.sides["tail"]
    >>> tails.queries.tolist(), tails.ids.tolist(), tails.correct.tolist()
    ([[0], [1]], [[0], [1]], [[True], [True]])
    """

    # of ``queries``, then of ``ids``: ("head", "relation", "tail") where tails are ranked
    columns: tuple[str, ...]
    queries: Tensor  # (Q, c) int64, each once, such as [head, relation] where tails are ranked
    row: Tensor  # (n,) int64, the query of each ranking task, in the order of the triples
    ids: Tensor  # (Q, k) int64, the candidates; -1 if a query has fewer
    scores: Tensor  # (Q, k) float64, the scores of the model; NaN for missing candidates
    correct: Tensor  # (Q, k) bool, whether the candidate is a target of the query

    def tables_of(self) -> dict[str, list[float]]:
        """Return one entry per candidate, in the order of queries, by column."""
        query, place = (self.ids >= 0).nonzero(as_tuple=True)
        *given, target = self.columns
        listed = dict(zip(given, self.queries[query].T.tolist(), strict=True))
        listed[target] = self.ids[query, place].tolist()
        listed["position"] = (place + 1).tolist()
        listed["score"] = self.scores[query, place].tolist()
        listed["correct"] = self.correct[query, place].int().tolist()
        return listed


@dataclass(frozen=True, eq=False)
class TopAnswers(Rendered):
    """The best candidates of every query; ``to_pandas`` and ``to_csv`` list them.

    Known positives are filtered as in the ranks, except the targets of the query, which are marked
    as correct. Candidates of equal score are sorted by id; NaN scores come last.

    Attributes:
        sides: by "tail" and "head" (``rank_complex_queries``: "answer"): queries (Q, c), and (Q, k)
            ids (-1: missing), scores and whether they are correct. ``ids[row]`` has one line per
            triple.
        names: names of the ids, see ``named``.

    >>> import torch
    >>> from torchrankmetrics.kg import rank_alignment
    >>> left = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    >>> right = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> answers = rank_alignment([[0, 0], [1, 1]], left, right, top_k=1).answers
    >>> answers
    TopAnswers(4 queries, sides: tail, head)
    >>> print(answers.to_text())
    side  left  right  position   score  correct
    ----  ----  -----  --------  ------  -------
    tail     0      0         1  0.9000        1
    tail     1      1         1  0.8000        1
    head     0      0         1  0.9000        1
    head     1      1         1  0.8000        1
    """

    sides: Mapping[str, SideAnswers]
    names: Mapping[str, Names] = field(default_factory=dict)

    def named(
        self,
        entities: Names = None,
        relations: Names = None,
        *,
        times: Names = None,
        queries: Names = None,
        left: Names = None,
        right: Names = None,
    ) -> "TopAnswers":
        """Return a copy whose tables show names, given by id, instead of ids.

        Args:
            entities (mapping or sequence of str, default None): of heads, tails and answers.
            relations (mapping or sequence of str, default None): of relations.
            times (mapping or sequence of str, default None): of times (``rank_facts``).
            queries (mapping or sequence of str, default None): of queries
                (``rank_complex_queries``).
            left (mapping or sequence of str, default None): of left entities (``rank_alignment``).
            right (mapping or sequence of str, default None): of right entities.
        """
        names = {
            "entities": entities,
            "relations": relations,
            "times": times,
            "queries": queries,
            "left": left,
            "right": right,
        }
        return replace(self, names=names)

    def __len__(self) -> int:
        return sum(len(side.queries) for side in self.sides.values())

    def __repr__(self) -> str:
        return f"TopAnswers({len(self)} queries, sides: {', '.join(self.sides)})"

    __str__ = __repr__  # not the whole table

    def tabular(self) -> Tabular:
        """Return the table with one row per candidate; "side" is the predicted side."""
        there = {name for side in self.sides.values() for name in side.columns}
        columns = [name for name in _NAMES if name in there]
        rows: list[tuple[str | int | float, ...]] = []
        for name, side in self.sides.items():
            listed = side.tables_of()
            labels = [self._labels(column, listed[column]) for column in columns]
            numbers = [listed[column] for column in ("position", "score", "correct")]
            rows += zip([name] * len(listed["score"]), *labels, *numbers, strict=True)
        header = ("side", *columns, "position", "score", "correct")
        return Tabular.named(header, rows, keys=1 + len(columns))

    def _labels(self, column: str, ids: list[float]) -> list[int | str]:
        kind = _NAMES[column]
        return [name_of(int(number), self.names.get(kind), kind, "id") for number in ids]


class AnsweredTable(RankTable):
    """The ranks of an evaluation, with its best candidates, which files of ranks do not contain.

    >>> import torch
    >>> from torchrankmetrics.kg import rank_alignment
    >>> left = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    >>> right = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> table = rank_alignment([[0, 0], [1, 1]], left, right, top_k=1)
    >>> len(table), len(table.answers)
    (4, 4)
    """

    answers: TopAnswers | None = None
    """The best candidates of the queries, if ``top_k`` was given."""

    positives: Tensor | None = None
    """Of ``rank_complex_queries``: query and hard answer of each row, int64 (2, n)."""


def answered(rows: Tensor, answers: TopAnswers | None) -> AnsweredTable:
    """Return a table of rows with the best candidates of an evaluation."""
    table = AnsweredTable(rows)
    table.answers = answers
    return table


def concatenate_tables(tables: Sequence[AnsweredTable]) -> AnsweredTable:
    """Return one table with the rows and the best candidates of several sides."""
    sides: dict[str, SideAnswers] = {}
    for table in tables:
        if table.answers is not None:
            sides |= table.answers.sides
    rows = RankTable.concatenate(tables).rows
    return answered(rows, TopAnswers(sides) if sides else None)
