"""Tables of what is known of the benchmark graphs."""

from itertools import product

from torchrankmetrics.cli.counts import Side, counts_of_dataset
from torchrankmetrics.cli.output import watch
from torchrankmetrics.datasets import dataset_facts
from torchrankmetrics.datasets.facts import KNOWN, SPLITS, Entities, Split
from torchrankmetrics.evaluation.names import base_definition
from torchrankmetrics.rendering import Cell, Tabular
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION

Task = tuple[str, Split, Side, Entities]
_TASKS = ("dataset", "split", "side", "entities", "known")


def listed(tasks: list[Task]) -> Tabular:
    """Sizes of data sets, and the candidates of their tasks."""
    rows: list[tuple[Cell, ...]] = []
    for task in tasks:
        facts, counts = dataset_facts(task[0]), counts_of_dataset(*task)[0]
        mean = int((counts.num_candidates * counts.count).sum()) / counts.num_tasks
        low, high = int(counts.num_candidates[0]), int(counts.num_candidates[-1])
        sizes = (facts.num_entities[task[3]], facts.num_relations, counts.num_tasks)
        rows.append((*_task(task), *sizes, len(counts.num_candidates), low, mean, high))
    columns = (*_TASKS, "entities_known", "relations", "tasks", "distinct", "min", "mean", "max")
    note = "distinct, min, mean, max: of the filtered candidates of a task"
    return Tabular.named(columns, rows, (note,), keys=len(_TASKS))


def null_moments(tasks: list[Task], metrics: list[str]) -> Tabular:
    """Mean and variance of metrics by chance, on the tasks of data sets."""
    definitions = []
    for metric in metrics:
        definition = base_definition(metric)
        if not definition.has_null:
            raise ValueError(f"--metric must name metrics with an expectation, such as mrr or hits@10; got {metric!r}")
        definitions.append(definition)
    rows: list[tuple[Cell, ...]] = []
    pairs = list(product(tasks, definitions))
    for task, definition in watch(pairs, len(pairs), "null moments"):
        counts, _ = counts_of_dataset(*task)
        found = DEFAULT_EXPECTATION.moments(definition, counts)
        rows.append((*_task(task), definition.name, found.mean, found.variance))
    note = "of the metric over all tasks, if every rank is uniform among its candidates, independently"
    return Tabular.named((*_TASKS, "metric", "mean", "variance"), rows, (note,), keys=len(_TASKS) + 1)


def provenance(names: list[str]) -> Tabular:
    """Source, licence and checksums of data sets."""
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        facts = dataset_facts(name)
        rows += [
            (name, split, facts.num_triples[split], facts.source, facts.licence, facts.checksum[split])
            for split in SPLITS
        ]
    note = "sha256: of the triples as lines of labels, head TAB relation TAB tail LF, sorted by code point"
    return Tabular.named(("dataset", "split", "triples", "source", "licence", "sha256"), rows, (note,), keys=2)


def _task(task: Task) -> tuple[str, ...]:
    return (*task, "+".join(KNOWN[task[1]]))
