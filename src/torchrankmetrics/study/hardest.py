"""The worst and the best tasks of a data set, by name: where the models fail, and what they answered there."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from torch import Tensor

from torchrankmetrics.datasets.triple_files import read_triples
from torchrankmetrics.protocols.answers import Names, TopAnswers, named
from torchrankmetrics.rendering import Cell, Column, Rendered, Tabular
from torchrankmetrics.sides import TASK_SIDES
from torchrankmetrics.study.tasks import DataSet
from torchrankmetrics.table.columns import ABSENT, SIDE_CODES, Columns, used
from torchrankmetrics.theory.candidates import FloatArray

Part = int | str
Triple = tuple[Part, Part, Part]
Triples = str | os.PathLike[str] | Tensor | np.ndarray[Any, Any] | Mapping[int, Triple] | Sequence[Triple]
"""The triples that sample ids count: a file of head, relation, tail, an (n, 3) array of ids, or names of them."""
_SHOWN = 3  # answers of a model


@dataclass(frozen=True)
class Task:
    """A ranking task.

    Attributes:
        kind: "worst" or "best".
        side: that was asked for; "" where nobody said.
        sample_id: of it; None: it has none.
        group: likewise, the relation as a rule.
        triple: head, relation and tail by name, or by id where there are no names; None where triples are not known.
        num_candidates: that the answer was ranked among.
        ranks: realistic rank by model, mean over its seeds.
        answers: first answers by model, best first, of those that have kept them.
    """

    kind: str
    side: str
    sample_id: int | None
    group: int | None
    triple: Triple | None
    num_candidates: int
    ranks: Mapping[str, float]
    answers: Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class HardestTasks(Rendered):
    """The worst and the best tasks of a data set."""

    dataset: str
    models: tuple[str, ...]
    rows: tuple[Task, ...]

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        by_name = all(row.triple is not None for row in self.rows)
        about = ["head", "relation", "tail"] if by_name else ["task", "group"]
        answered = [model for model in self.models if any(model in row.answers for row in self.rows)]
        columns = [Column(name, "" if name == "kind" else None, key=True) for name in ("kind", "side", *about)]
        columns += [Column("candidates"), *(Column(f"rank {m}", m, above="rank by", digits=1) for m in self.models)]
        columns += [Column(f"answers {m}", m, above="answered by") for m in answered]
        lines: list[list[Cell]] = []
        for row in self.rows:
            known = row.triple if by_name and row.triple is not None else (row.sample_id, row.group)
            line: list[Cell] = [row.kind, row.side or None, *known, row.num_candidates]
            line += [row.ranks[model] for model in self.models]
            lines.append(line + [", ".join(map(str, row.answers.get(model, ()))) or None for model in answered])
        seeds = "Realistic ranks, means over seeds; worst and best by the mean of their logarithms over the models."
        return Tabular(columns, lines, (seeds,))


def hardest(
    data: DataSet, number: int, triples: Triples | None, entities: Names = None, relations: Names = None
) -> HardestTasks:
    """Find the tasks that all models together rank worst and best.

    Raises:
        OSError, ValueError: if a file of triples cannot be read, or a triple or a name is missing.
    """
    models = data.aligned or {data.reference.run.model: [data.reference]}
    rows = data.reference.rows
    kept = used(rows, "both")
    ranks = {model: _mean_ranks([read.rows for read in reads], kept) for model, reads in models.items()}
    columns = Columns(rows[kept])
    score = np.mean([np.log(one) for one in ranks.values()], axis=0)
    order = np.lexsort((columns.sample_id, columns.side, -columns.num_candidates, score))
    number = min(number, len(order))
    places = [("worst", i) for i in order[::-1][:number].tolist()] + [("best", i) for i in order[:number].tolist()]
    known = None if triples is None else _triples(triples)
    answers = {model: one for model, reads in models.items() if (one := getattr(reads[0].table, "answers", None))}
    side_of = {SIDE_CODES[name]: name for name in TASK_SIDES}
    found: list[Task] = []
    for kind, i in places:
        side, sample, group = side_of.get(int(columns.side[i]), ""), int(columns.sample_id[i]), int(columns.group[i])
        ids = None if known is None else _of(known, sample, data.name)
        told = {} if ids is None else {m: _answered(one, side, ids, entities) for m, one in answers.items()}
        found.append(
            Task(
                kind=kind,
                side=side,
                sample_id=None if sample == ABSENT else sample,
                group=None if group == ABSENT else group,
                triple=None if ids is None else _in_words(ids, entities, relations),
                num_candidates=int(columns.num_candidates[i]),
                ranks={model: float(one[i]) for model, one in ranks.items()},
                answers={model: first for model, first in told.items() if first},
            )
        )
    return HardestTasks(data.name, tuple(models), tuple(found))


def _mean_ranks(runs: Iterable[np.ndarray[Any, Any]], kept: np.ndarray[Any, Any]) -> FloatArray:
    each = [Columns(rows[kept]) for rows in runs]
    mean = np.mean([(one.optimistic + one.pessimistic) / 2 for one in each], axis=0)
    return np.asarray(mean, dtype=np.float64)


def _triples(given: Triples) -> Mapping[int, Triple]:
    if isinstance(given, str | os.PathLike):
        return dict(enumerate(read_triples(given)))
    if isinstance(given, Mapping):
        return given
    rows = given.tolist() if isinstance(given, Tensor | np.ndarray) else list(given)
    if wrong := [row for row in rows if not isinstance(row, list | tuple) or len(row) != 3]:
        raise ValueError(f"triples must be of head, relation and tail, (n, 3); got {wrong[0]!r}")
    return {i: tuple(row) for i, row in enumerate(rows)}


def _of(triples: Mapping[int, Triple], sample: int, dataset: str) -> Triple:
    if sample == ABSENT:
        raise ValueError(f"triples name tasks by their sample id, and those of {dataset} have none")
    if sample not in triples:
        raise ValueError(f"triples lack one for the sample id {sample} of {dataset}; there are {len(triples)}")
    head, relation, tail = (part.item() if isinstance(part, np.generic) else part for part in triples[sample])
    return head, relation, tail


def _in_words(triple: Triple, entities: Names, relations: Names) -> Triple:
    kinds = ((entities, "entities"), (relations, "relations"), (entities, "entities"))
    head, relation, tail = (named([cast("int", part)], *kind)[0] for part, kind in zip(triple, kinds, strict=True))
    return head, relation, tail


def _answered(answers: TopAnswers, side: str, triple: Triple, entities: Names) -> tuple[Any, ...]:
    """First answers to the query of a task, whose triple is of ids or of the names that the answers have."""
    if side not in answers.sides:
        return ()
    found = answers.sides[side]
    asked = triple[:2] if side == "tail" else triple[1:]
    parts = (answers.entities, answers.relations) if side == "tail" else (answers.relations, answers.entities)
    ids = [_id_of(part, names) for part, names in zip(asked, parts, strict=True)]
    place = (found.queries.numpy() == np.array(ids)).all(1).nonzero()[0]
    if not len(place):
        return ()
    kept = [i for i in found.ids[place[0]].tolist() if i >= 0]
    names = entities if answers.entities is None else answers.entities
    return tuple(named(kept[:_SHOWN], names, "entities"))


def _id_of(part: Part, names: Names) -> int:
    if isinstance(part, int) or names is None:
        return part if isinstance(part, int) else -1
    ids = names.items() if isinstance(names, Mapping) else enumerate(names)
    return next((i for i, name in ids if name == part), -1)
