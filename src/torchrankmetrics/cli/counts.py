"""``adjust``, ``datasets``, ``candidates`` and ``metrics``: published numbers, candidate counts, names of metrics."""

import csv
import re
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from torchrankmetrics.cli.output import Form, Output, arg, emit, input_path, opt, reject, split_list
from torchrankmetrics.rendering import Cell, PValue, Tabular
from torchrankmetrics.validation import ENTITY_SIDES, shorten

if TYPE_CHECKING:
    from torchrankmetrics.definitions.candidates import CandidateCounts

Split = Literal["train", "valid", "test"]
Side = Literal["both", "head", "tail"]
Entities = Literal["all", "train"]
_HISTOGRAM = ["split", "entities", "side", "num_candidates", "count"]  # what --counts reads
_TASKS = ("dataset", "split", "side", "entities", "known")
_COUNTS = ("tasks", "distinct", "min", "mean", "max")
_ENTITIES = opt("Candidate entities: all, or train (entities of train, as in PyKEEN).")


def adjust(
    metric: Annotated[str, opt("Published metric: mrr, mr, hits@10 ...", "--metric", "-m")],
    value: Annotated[str, opt("Published value with its digits; hits as a share.")],
    dataset: Annotated[str | None, opt("Dataset with known candidate counts.", "--dataset", "-d")] = None,
    counts: Annotated[Path | None, opt("Candidate counts: CSV file that candidates --histogram writes.")] = None,
    num_candidates: Annotated[int | None, opt("Number of candidates of every task.")] = None,
    view: Annotated[str, opt("Views: adjusted_index, normalized, z_score, p_value.")] = "adjusted_index",
    split: Annotated[Split, opt("Split.")] = "test",
    side: Annotated[Side, opt("Side of the ranking tasks.")] = "both",
    entities: Annotated[Entities, _ENTITIES] = "all",
    form: Form = None,
    output: Output = None,
) -> int:
    """Adjust a published number for chance, with the candidate counts of its test set.

    0 is random ranking and 1 the optimum; low and high are the ends of the interval that the rounding leaves.

    For example

    `torchrankmetrics adjust --dataset fb15k237 --metric mrr --value 0.355`

    `torchrankmetrics adjust -d wn18rr -m hits@10 --value 0.55 --view adjusted_index,z_score --side tail`
    """
    from torchrankmetrics.datasets import candidate_counts, dataset_facts
    from torchrankmetrics.definitions.protocol import VIEWS
    from torchrankmetrics.metrics.adjust import adjust
    from torchrankmetrics.metrics.registry import as_measure

    views = split_list(view, "--view", VIEWS[1:])
    if sum(source is not None for source in (dataset, counts, num_candidates)) != 1:
        raise ValueError("one of --dataset, --counts and --num-candidates must be given, for the candidate counts")
    known: Any = num_candidates
    if known is not None:
        reject("with --num-candidates", split=split != "test", side=side != "both", entities=entities != "all")
        note = f"{num_candidates} candidates in every task"
    else:
        if counts is not None:
            title, known = str(counts), _read_counts(input_path(counts), split, side, entities)
        else:
            title = dataset_facts(str(dataset)).title
            known = candidate_counts(str(dataset), split, None if side == "both" else side, entities)
        sides = "both sides" if side == "both" else f"{side} side"
        kind = "all entities" if entities == "all" else "entities of train only"
        low, high = known.num_candidates[0], known.num_candidates[-1]
        note = f"{title}: {split} split, {sides}, {kind}: {known.num_tasks} tasks among {low} to {high} candidates"
    rows: list[tuple[Cell, ...]] = []
    for one in views:
        result = adjust(value, metric, known, view=one)
        ends = (result.value, result.low, result.high)
        cells = ends if result.log10_p is None else tuple(map(PValue, ends, result.log10_p))
        rows.append((as_measure(metric, view=one).key, *cells))
    return emit(Tabular.named(("metric", "value", "low", "high"), rows, (note,)), form, output)


def _read_counts(path: Path, split: Split, side: Side, entities: Entities) -> "CandidateCounts":
    """Read the CSV that ``candidates --histogram`` writes."""
    from torchrankmetrics.datasets.triple_files import read_text
    from torchrankmetrics.definitions.candidates import CandidateCounts

    expected, found = ",".join(_HISTOGRAM), []
    header, *lines = csv.reader(read_text(path, f"expected {expected}").splitlines() or [""])
    if header != _HISTOGRAM:
        raise ValueError(f"{path} must start with the columns {expected} (candidates --histogram -f csv)")
    for number, line in enumerate(lines, 2):
        if len(line) != len(header) or not all(re.fullmatch(r"\d{1,9}", cell) for cell in line[3:]):
            got = shorten(",".join(line))
            raise ValueError(f"{path} line {number}: expected {expected}, the last two integers; got {got}")
        if line[:2] == [split, entities] and side in ("both", line[2]):
            found.append((int(line[3]), int(line[4])))
    if not found:
        raise ValueError(f"{path} has no tasks of split {split!r}, side {side!r}, entities {entities!r}")
    numbers, weights = zip(*found, strict=True)
    return CandidateCounts.of(numbers, count=weights)


def datasets(
    names: Annotated[list[str] | None, arg("Names of datasets; default: all.")] = None,
    metrics: Annotated[
        str | None, opt("Metrics to print mean and variance of under random ranking.", "--metric", "-m")
    ] = None,
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

    `torchrankmetrics datasets --metric mrr,hits@10 --format csv --split valid,test --side both,head,tail`
    """
    from torchrankmetrics.datasets import candidate_counts, dataset_facts, dataset_names

    definitions: list[Any] = []
    if metrics is not None:
        from torchrankmetrics.metrics.registry import base_definition
        from torchrankmetrics.null import ExactExpectation

        definitions = [base_definition(name) for name in split_list(metrics, "--metric")]
    options = (("--split", split, Split), ("--side", side, Side), ("--entities", entities, Entities))
    parts = list(product(*(split_list(text, option, get_args(kind)) for option, text, kind in options)))
    rows: list[tuple[Cell, ...]] = []
    for facts, (one_split, one_side, kind) in product(map(dataset_facts, names or dataset_names()), parts):
        if one_split not in facts.num_triples and not names:
            continue
        counts = candidate_counts(facts.name, one_split, None if one_side == "both" else one_side, kind)
        task = (facts.name, one_split, one_side, kind, "+".join(facts.known[one_split]))
        if metrics is None:
            rows.append((*task, facts.num_entities[kind], facts.num_relations, *_summary(counts)))
        for definition in definitions:
            moments = ExactExpectation().moments(definition, counts)
            rows.append((*task, definition.name, moments.mean, moments.variance))
    columns: tuple[str, ...] = (*_TASKS, "entities_known", "relations", *_COUNTS)
    note = "distinct, min, mean, max: numbers of filtered candidates of the tasks"
    if metrics is not None:
        columns = (*_TASKS, "metric", "mean", "variance")
        note = "mean and variance of the metric if every rank is uniform among its candidates, independently"
    return emit(Tabular.named(columns, rows, (note,), keys=len(_TASKS) + (metrics is not None)), form, output)


def _summary(counts: "CandidateCounts") -> tuple[int | float, ...]:
    N, tasks = counts.num_candidates, counts.num_tasks
    return tasks, len(N), int(N[0]), int((N * counts.count).sum()) / tasks, int(N[-1])


def candidates(
    train: Annotated[Path, opt("File of triples: head TAB relation TAB tail, labels or ids.")],
    test: Annotated[Path, opt("File of test triples.")],
    valid: Annotated[Path | None, opt("File of validation triples.")] = None,
    entities: Annotated[str, _ENTITIES] = "all",
    num_entities: Annotated[int | None, opt("Number of entities, if some occur in no triple.")] = None,
    histogram: Annotated[bool, opt("Print every count, for adjust --counts.", "--histogram")] = False,
    form: Form = None,
    output: Output = None,
) -> int:
    """Count the filtered candidates of every ranking task of a graph.

    Test is filtered by all files, valid by train and valid, train by train: early stopping must not see test triples.

    For example

    `torchrankmetrics candidates --train train.tsv --valid valid.tsv --test test.tsv`

    `torchrankmetrics candidates --train train.tsv --test test.tsv --histogram -f csv -o counts.csv`
    """
    from torchrankmetrics.datasets.facts import KNOWN
    from torchrankmetrics.datasets.triple_files import number_triples, read_triples
    from torchrankmetrics.definitions.candidates import CandidateCounts
    from torchrankmetrics.kg.known_triples import candidate_histogram

    kinds = split_list(entities, "--entities", get_args(Entities))
    if "all" not in kinds:
        reject("without --entities all", num_entities=num_entities)
    paths: dict[Split, Path | None] = {"train": train, "valid": valid, "test": test}
    given = {split: input_path(path) for split, path in paths.items() if path is not None}
    graph = number_triples({split: read_triples(path) for split, path in given.items()})
    found = len(graph.entities)
    number = found if num_entities is None else num_entities
    if number < found:
        raise ValueError(f"--num-entities must be at least {found}, which occur in the triples; got {number}")
    rows: list[tuple[Cell, ...]] = []
    for split, kind, side in product(given, kinds, ENTITY_SIDES):
        known = [name for name in KNOWN[split] if name in given]
        total = number if kind == "all" else found  # entities of train are given by id
        N, count = candidate_histogram(graph.splits, split, known, side, entities=kind, num_entities=total)
        if histogram:
            rows += [(split, kind, side, int(n), int(c)) for n, c in zip(N, count, strict=True)]
        elif len(N):
            rows.append((split, kind, side, "+".join(known), *_summary(CandidateCounts.of(N, count=count))))
    notes = [f"{number} entities, {len(graph.relations)} relations"]
    if all(label.isdecimal() for label in graph.entities) and (most := max(map(int, graph.entities))) >= number:
        notes.append(f"ids go up to {most}, but only {number} occur: if all are entities, --num-entities {most + 1}")
    columns = _HISTOGRAM if histogram else ("split", "entities", "side", "known", *_COUNTS)
    return emit(Tabular.named(columns, rows, notes, keys=3), form, output)


def metrics(form: Form = None, output: Output = None) -> int:
    """List the metrics of ranking tasks and of queries, with their views and synonyms.

    For example

    `torchrankmetrics metrics`
    """
    # the file that docs/metric_names.py writes: the registry imports torch
    text = (files("torchrankmetrics.cli") / "metrics.csv").read_text(encoding="utf-8")
    columns, *rows = csv.reader(text.splitlines())
    note = (
        "A name may contain side, rank type and view: tail_pessimistic_z_mrr. Views: z_mrr, p_mrr, adjusted_mrr, "
        "normalized_mrr; amr and amri are the normalized and the adjusted mean rank"
    )
    return emit(Tabular.named(columns, rows, (note,)), form, output)
