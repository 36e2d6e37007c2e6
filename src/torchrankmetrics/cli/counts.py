"""``adjust``, ``datasets`` and ``metrics``: published numbers, candidate counts, metric names."""

import csv
import os
from collections.abc import Sequence
from importlib.resources import files
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple, get_args

from torchrankmetrics.cli.output import (
    Digits,
    Form,
    Output,
    arg,
    emit,
    opt,
    reject,
    split_lists,
    with_digits,
)
from torchrankmetrics.rendering import Cell, PValue, Tabular

Split = Literal["train", "valid", "test"]
Side = Literal["both", "head", "tail"]
Entities = Literal["all", "train"]
_TASKS = ("dataset", "split", "side", "entities", "known")
_METRICS = opt(
    "Metrics to print mean and variance of under random ranking.",
    "--metric",
    "-m",
    multiple=True,
)


def adjust(
    metric: Annotated[str, opt("Published metric: mrr, mr, hits@10 ...", "--metric", "-m")],
    value: Annotated[str, opt("Published value with its digits; hits as a share.")],
    dataset: Annotated[
        str | None, opt("Dataset with known candidate counts.", "--dataset", "-d")
    ] = None,
    num_candidates: Annotated[int | None, opt("Number of candidates of every task.")] = None,
    view: Annotated[
        Sequence[str],
        opt(
            "Views: adjusted_index (default), normalized, z_score, p_value.",
            multiple=True,
        ),
    ] = (),
    split: Annotated[Split, opt("Split.")] = "test",
    side: Annotated[Side, opt("Side of the ranking tasks.")] = "both",
    entities: Annotated[
        Entities, opt("Candidate entities: all, or train (entities of train, as in PyKEEN).")
    ] = "all",
    digits: Digits = None,
    form: Form = None,
    output: Output = None,
) -> int:
    """Adjust a published number for chance, with the candidate counts of its test set.

    0 is guessing, 1 is perfect. rounding_low and rounding_high: the range that the rounding of
    --value leaves (not a confidence interval); sampling_error: half-width of the 95% interval of
    hits.

    For example
    `torchrankmetrics adjust --dataset fb15k237 --metric mrr --value 0.355`
    `torchrankmetrics adjust -d wn18rr -m hits@10 --value 0.55 --view adjusted_index,z_score`
    """
    from torchrankmetrics.definitions.protocol import VIEWS

    if (dataset is None) == (num_candidates is None):
        raise ValueError(
            "one of --dataset and --num-candidates must be given, for the candidate counts"
        )
    about: dict[str, Any] = {"dataset": dataset, "split": split, "side": side, "entities": entities}
    if dataset is None:
        reject(
            "with --num-candidates",
            split=split != "test",
            side=side != "both",
            entities=entities != "all",
        )
        known: Any = num_candidates
        note = f"{num_candidates} candidates in every task"
        about = {"num_candidates": num_candidates}
    else:
        known, note = _counts_of(dataset, split, side, entities)
    views = split_lists(view or ["adjusted_index"], "--view", VIEWS[1:])
    table = _adjusted(value, metric, known, views, note)
    return emit(with_digits(table, digits), form, output, **about)


def _counts_of(dataset: str, split: Split, side: Side, entities: Entities) -> tuple[Any, str]:
    """The candidate counts of a test set, and a note that describes it."""
    from torchrankmetrics.datasets import candidate_counts, dataset_facts

    counts = candidate_counts(dataset, split, None if side == "both" else side, entities)
    sides = "both sides" if side == "both" else f"{side} side"
    candidates = "all entities" if entities == "all" else "entities of train only"
    among = f"{counts.num_candidates[0]} to {counts.num_candidates[-1]} candidates"
    title = dataset_facts(dataset).title
    tasks = f"{counts.num_tasks} tasks among {among}"
    return counts, f"{title}: {split} split, {sides}, {candidates}: {tasks}"


def _adjusted(value: str, metric: str, known: Any, views: Sequence[Any], note: str) -> Tabular:
    """One row per view."""
    from torchrankmetrics.metrics.adjust import adjust
    from torchrankmetrics.metrics.names import as_measure

    names = ["metric", "value", "rounding_low", "rounding_high"]
    rows: list[tuple[Cell, ...]] = []
    errors: list[float | None] = []
    for view in views:
        result = adjust(value, metric, known, view=view)
        cells: tuple[Cell, ...] = (result.value, result.rounding_low, result.rounding_high)
        if result.log10_p is not None:
            cells = tuple(map(PValue, cells, result.log10_p))  # type: ignore[arg-type]
        rows.append((as_measure(metric, view=view).key, *cells))
        errors.append(result.sampling if result.is_binomial else None)
    if any(error is not None for error in errors):
        names.append("sampling_error")
        rows = [(*row, error) for row, error in zip(rows, errors, strict=True)]
    return Tabular.named(names, rows, (note,))


def datasets(
    names: Annotated[list[str] | None, arg("Names of datasets; default: all.", nargs=-1)] = None,
    metrics: Annotated[Sequence[str], _METRICS] = (),
    split: Annotated[
        Sequence[str], opt("Splits: train, valid, test (default).", multiple=True)
    ] = (),
    side: Annotated[Sequence[str], opt("Sides: both (default), head, tail.", multiple=True)] = (),
    entities: Annotated[
        Sequence[str], opt("Candidate entities: all (default), train.", multiple=True)
    ] = (),
    digits: Digits = None,
    form: Form = None,
    output: Output = None,
) -> int:
    """List the datasets with known filtered candidate counts, or random baselines on them.

    With --metric, the columns are the mean and the variance of metrics under random ranking.

    Each split is filtered by itself and the splits before it (column known).

    For example
    `torchrankmetrics datasets`
    `torchrankmetrics datasets --metric mrr,hits@10 --format csv --split valid,test`
    """
    # NumPy starts threads, which take longer than this command
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from torchrankmetrics.datasets import dataset_facts, dataset_names

    splits = split_lists(split or ["test"], "--split", get_args(Split))
    sides = split_lists(side or ["both"], "--side", get_args(Side))
    candidates = split_lists(entities or ["all"], "--entities", get_args(Entities))
    tasks = []
    for name in names or dataset_names():
        facts = dataset_facts(name)
        # without names, those that have the split
        own = [one for one in splits if names or one in facts.num_triples]
        tasks += [_Task(facts, *one) for one in product(own, sides, candidates)]
    table = _moments(tasks, split_lists(metrics, "--metric")) if metrics else _counts(tasks)
    return emit(with_digits(table, digits), form, output)


class _Task(NamedTuple):
    """The ranking tasks of a split of a dataset."""

    facts: Any
    split: Any
    side: Any
    entities: Any

    @property
    def cells(self) -> tuple[Cell, ...]:
        known = "+".join(self.facts.known[self.split])
        return (self.facts.name, self.split, self.side, self.entities, known)

    def counts(self) -> Any:
        """The numbers of candidates."""
        from torchrankmetrics.datasets import candidate_counts

        side = None if self.side == "both" else self.side
        return candidate_counts(self.facts.name, self.split, side, self.entities)


def _counts(tasks: list[_Task]) -> Tabular:
    columns = ("entities_known", "relations", "tasks", "distinct", "min", "mean", "max")
    rows: list[tuple[Cell, ...]] = []
    for task in tasks:
        counts = task.counts()
        N = counts.num_candidates
        mean = int((N * counts.count).sum()) / counts.num_tasks
        entities = task.facts.num_entities[task.entities]
        graph = (entities, task.facts.num_relations, counts.num_tasks)
        rows.append((*task.cells, *graph, len(N), int(N[0]), mean, int(N[-1])))
    note = "distinct, min, mean, max: numbers of filtered candidates of the tasks"
    return Tabular.named((*_TASKS, *columns), rows, (note,), len(_TASKS))


def _moments(tasks: list[_Task], names: list[str]) -> Tabular:
    """Mean and variance under random ranking, one row per metric."""
    from torchrankmetrics.metrics.names import base_definition
    from torchrankmetrics.null import ExactExpectation

    definitions: list[Any] = [base_definition(name) for name in names]
    rows: list[tuple[Cell, ...]] = []
    for task in tasks:
        counts = task.counts()
        for definition in definitions:
            moments = ExactExpectation().moments(definition, counts)
            rows.append((*task.cells, definition.name, moments.mean, moments.variance))
    note = (
        "mean and variance of the metric if every rank is uniform among its candidates, "
        "independently"
    )
    columns = (*_TASKS, "metric", "mean", "variance")
    return Tabular.named(columns, rows, (note,), len(_TASKS) + 1)


def metrics(form: Form = None, output: Output = None) -> int:
    """List the metrics of ranking tasks and of queries, with their views and synonyms.

    For example
    `torchrankmetrics metrics`
    """
    # the file that docs/metric_names.py writes: the registry imports torch
    text = (files("torchrankmetrics.cli") / "metrics.csv").read_text(encoding="utf-8")
    columns, *rows = csv.reader(text.splitlines())
    note = (
        "A name may contain side, rank type and view: tail_pessimistic_z_mrr. Views: z_mrr, p_mrr, "
        "adjusted_mrr, normalized_mrr; amr and amri are the normalized and the adjusted mean rank"
    )
    return emit(Tabular.named(columns, rows, (note,)), form, output)
