"""The same queries in the evaluations of several models, query by query."""

from collections.abc import Sequence

import numpy as np

from torchrankmetrics.evaluation.analysis import Average, Side, query_sample_of
from torchrankmetrics.table.columns import ABSENT, Columns, Rows, weights
from torchrankmetrics.table.queries import Queries, queries_of
from torchrankmetrics.theory.candidates import IntArray
from torchrankmetrics.theory.queries.definitions import QueryDefinition
from torchrankmetrics.theory.queries.sample import QuerySample


def paired_queries(
    rows: Sequence[Rows], definition: QueryDefinition, side: Side, average: Average
) -> tuple[list[QuerySample], IntArray]:
    """Queries of every run in one common order, as far as the metric has a value, and a row of each.

    Args:
        rows: of every run, in one order of tasks.
        definition: the metric.
        side: of the queries.
        average: how they are weighed.

    Returns:
        A sample per run, and the index (q,) of a row of each query.

    Raises:
        ValueError: if the runs differ in which tasks are answers of one query, or as ``queries_of``.
    """
    weighed = np.flatnonzero(weights(rows[0]) > 0)
    parts = [run[weighed] for run in rows]
    names = np.stack([Columns(part).query for part in parts], 1)
    alone = names == ABSENT
    if (alone.any(1) != alone.all(1)).any():
        raise _differing()
    # queries without names of their own are told apart by group and weight, too
    about = Columns(parts[0])
    facts = [about.side, *(np.where((names < 0).all(1), fact, 0) for fact in (about.group, about.weight_bits))]
    label = np.unique(np.column_stack([names, *facts]), axis=0, return_inverse=True)[1].reshape(-1)
    found = [_queries(part, label) for part in parts]
    first = found[0]
    for other in found[1:]:
        same = len(other) == len(first) and np.array_equal(other.count, first.count)
        if not same or not np.array_equal(other.num_answers, first.num_answers):
            raise _differing()
    used = definition.has_value(first.num_candidates, first.num_answers) & first.of_side(side)
    samples = [query_sample_of(queries.take(used), average) for queries in found]
    return samples, weighed[first.row[used]]


def _queries(rows: Rows, label: IntArray) -> Queries:
    """Queries by a label that is at least as fine as their names; equal ones without a name may be apart in it."""
    query = Columns(rows).query
    named = query >= 0
    pairs = np.stack([Columns(rows).side, query, label], 1)[named]
    if len(np.unique(pairs, axis=0)) != len(np.unique(pairs[:, :2], axis=0)):
        raise _differing()
    return queries_of(rows, label)


def _differing() -> ValueError:
    return ValueError(
        "the models differ in which tasks are answers of one query: rank the same queries with both, in the same form, "
        "or name them with query="
    )
