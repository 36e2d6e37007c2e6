"""``adjust``, ``datasets`` and ``metrics``: published numbers, candidate counts, names of metrics."""

import csv
import os
from importlib.resources import files
from itertools import product
from typing import Annotated, Any, Literal, get_args

from torchrankmetrics.cli.output import Form, Output, arg, emit, opt, reject, split_list
from torchrankmetrics.rendering import Cell, PValue, Tabular

Split = Literal["train", "valid", "test"]
Side = Literal["both", "head", "tail"]
Entities = Literal["all", "train"]
_TASKS = ("dataset", "split", "side", "entities", "known")
_METRICS = opt("Metrics to print mean and variance of under random ranking.", "--metric", "-m")
_ENTITIES = opt("Candidate entities: all, or train (entities of train, as in PyKEEN).")


def adjust(
    metric: Annotated[str, opt("Published metric: mrr, mr, hits@10 ...", "--metric", "-m")],
    value: Annotated[str, opt("Published value with its digits; hits as a share.")],
    dataset: Annotated[
        str | None, opt("Dataset with known candidate counts.", "--dataset", "-d")
    ] = None,
    num_candidates: Annotated[int | None, opt("Number of candidates of every task.")] = None,
    view: Annotated[
        str, opt("Views: adjusted_index, normalized, z_score, p_value.")
    ] = "adjusted_index",
    split: Annotated[Split, opt("Split.")] = "test",
    side: Annotated[Side, opt("Side of the ranking tasks.")] = "both",
    entities: Annotated[Entities, _ENTITIES] = "all",
    form: Form = None,
    output: Output = None,
) -> int:
    """Adjust a published number for chance, with the candidate counts of its test set.

    0 is random ranking and 1 the optimum. rounding_low and rounding_high are the ends of the
    interval that the rounding leaves; sampling_error is the half-width of the 95% interval of hits.

    For example
    `torchrankmetrics adjust --dataset fb15k237 --metric mrr --value 0.355`
    `torchrankmetrics adjust -d wn18rr -m hits@10 --value 0.55 --view adjusted_index,z_score --side
    tail`
    """
    from torchrankmetrics.datasets import candidate_counts, dataset_facts
    from torchrankmetrics.definitions.protocol import VIEWS
    from torchrankmetrics.metrics.adjust import adjust
    from torchrankmetrics.metrics.names import as_measure

    views = split_list(view, "--view", VIEWS[1:])
    if (dataset is None) == (num_candidates is None):
        raise ValueError(
            "one of --dataset and --num-candidates must be given, for the candidate counts"
        )
    known: Any = num_candidates
    if dataset is None:
        reject(
            "with --num-candidates",
            split=split != "test",
            side=side != "both",
            entities=entities != "all",
        )
        note = f"{num_candidates} candidates in every task"
    else:
        known = candidate_counts(dataset, split, None if side == "both" else side, entities)
        task = f"{split} split, {'both sides' if side == 'both' else f'{side} side'}, "
        task += "all entities" if entities == "all" else "entities of train only"
        among = f"{known.num_tasks} tasks among {known.num_candidates[0]} to {known.num_candidates[-1]} candidates"
        note = f"{dataset_facts(dataset).title}: {task}: {among}"
    rows: list[tuple[Cell, ...]] = []
    errors: list[float | None] = []
    for one in views:
        result = adjust(value, metric, known, view=one)
        ends = (result.value, result.rounding_low, result.rounding_high)
        cells = ends if result.log10_p is None else tuple(map(PValue, ends, result.log10_p))
        errors += [result.sampling] if result.is_binomial else [None]
        rows.append((as_measure(metric, view=one).key, *cells))
    names: tuple[str, ...] = ("metric", "value", "rounding_low", "rounding_high")
    if any(error is not None for error in errors):
        names = (*names, "sampling_error")
        rows = [(*row, error) for row, error in zip(rows, errors, strict=True)]
    return emit(Tabular.named(names, rows, (note,)), form, output)


def datasets(
    names: Annotated[list[str] | None, arg("Names of datasets; default: all.", nargs=-1)] = None,
    metrics: Annotated[str | None, _METRICS] = None,
    split: Annotated[str, opt("Splits: train, valid, test.")] = "test",
    side: Annotated[str, opt("Sides: both, head, tail.")] = "both",
    entities: Annotated[str, _ENTITIES] = "all",
    form: Form = None,
    output: Output = None,
) -> int:
    """List the datasets with known filtered candidate counts, or mean and variance under random ranking on them.

    Each split is filtered by itself and the splits before it (column known).

    For example
    `torchrankmetrics datasets`
    `torchrankmetrics datasets --metric mrr,hits@10 --format csv --split valid,test --side
    both,head,tail`
    """
    # NumPy starts threads, which take longer than this command
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from torchrankmetrics.datasets import candidate_counts, dataset_facts, dataset_names

    columns: tuple[str, ...] = (
        "entities_known",
        "relations",
        "tasks",
        "distinct",
        "min",
        "mean",
        "max",
    )
    note = "distinct, min, mean, max: numbers of filtered candidates of the tasks"
    definitions = list[Any]()
    if metrics is not None:
        from torchrankmetrics.metrics.names import base_definition
        from torchrankmetrics.null import ExactExpectation

        columns = ("metric", "mean", "variance")
        definitions = [*map(base_definition, split_list(metrics, "--metric"))]
        note = "mean and variance of the metric if every rank is uniform among its candidates, independently"
    options = (
        ("--split", split, Split),
        ("--side", side, Side),
        ("--entities", entities, Entities),
    )
    parts = [split_list(text, option, get_args(kind)) for option, text, kind in options]
    rows: list[tuple[Cell, ...]] = []
    for facts, one_split, one_side, kind in product(
        map(dataset_facts, names or dataset_names()), *parts
    ):
        if one_split not in facts.num_triples and not names:
            continue
        counts = candidate_counts(
            facts.name, one_split, None if one_side == "both" else one_side, kind
        )
        task = (facts.name, one_split, one_side, kind, "+".join(facts.known[one_split]))
        if metrics is None:
            N = counts.num_candidates
            tasks = counts.num_tasks
            summary = (tasks, len(N), int(N[0]), int((N * counts.count).sum()) / tasks, int(N[-1]))
            rows.append((*task, facts.num_entities[kind], facts.num_relations, *summary))
        for definition in definitions:
            moments = ExactExpectation().moments(definition, counts)
            rows.append((*task, definition.name, moments.mean, moments.variance))
    return emit(
        Tabular.named((*_TASKS, *columns), rows, (note,), len(_TASKS) + (metrics is not None)),
        form,
        output,
    )


def metrics(form: Form = None, output: Output = None) -> int:
    """List the metrics of ranking tasks and of queries, with their views and synonyms.

    For example
    `torchrankmetrics metrics`
    """
    # the file that docs/metric_names.py writes: the registry imports torch
    text = (files("torchrankmetrics.cli") / "metrics.csv").read_text(encoding="utf-8")
    columns, *rows = csv.reader(text.splitlines())
    note = "A name may contain side, rank type and view: tail_pessimistic_z_mrr. Views: z_mrr, p_mrr, adjusted_mrr, "
    note += "normalized_mrr; amr and amri are the normalized and the adjusted mean rank"
    return emit(Tabular.named(columns, rows, (note,)), form, output)
