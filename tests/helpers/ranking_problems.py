"""Drawn ranking problems: ties, NaN, one or several targets per row, every kind of exclusion."""

import math

import hypothesis.strategies as st
import numpy as np
import torch
from scipy.sparse import csr_array
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from reference_ranks import lines
from torchrankmetrics.kg.known_positives import KnownPositives
from torchrankmetrics.ranking import flags as fault


def lay_out(scores, layout):
    """Equal values in other memory, with cells around or between; "one row" repeats the first."""
    B, N = scores.shape
    if layout == "negated" and scores.dtype in (torch.float32, torch.float64):
        return torch.complex(torch.zeros_like(scores), scores).conj().imag
    places = {
        "column": scores.new_ones(N, B).T,
        "sliced": scores.new_ones(B, 2 * N)[:, ::2],
        "window": scores.new_ones(2 * B, N + 2)[B:, 1 : N + 1],
        "column window": scores.new_ones(N, 2 * B).T[B:],
        "one row": scores.new_ones(1, N),
    }
    if layout not in places:
        return scores
    there = places[layout].copy_(scores[: len(places[layout])])
    return there.expand(B, N) if layout == "one row" else there


STRIDES = ["row", "column", "sliced", "window", "column window"]
VALUES = st.sampled_from([-math.inf, -2.0, -0.0, 0.0, 1.0, 1.5, 7.0, math.inf, math.nan])


@st.composite
def problems(draw, values=VALUES):
    B, N = draw(st.integers(0, 5)), draw(st.integers(1, 9))
    rows = [[draw(values) for _ in range(N)] for _ in range(B)]
    form = draw(st.sampled_from(["one", "pairs"]))
    if form == "one" or B == 0:
        tasks = [(i, draw(st.integers(0, N - 1))) for i in range(B)]
    else:
        tasks = draw(st.lists(st.tuples(st.integers(0, B - 1), st.integers(0, N - 1)), max_size=9))
    cells = st.tuples(st.integers(0, max(B - 1, 0)), st.integers(0, N - 1))
    pairs = draw(st.lists(cells, max_size=20)) if B else []
    return rows, B, N, form if B else "one", tasks, pairs


def as_target(form, tasks):
    if form == "one":
        return torch.tensor([column for _, column in tasks], dtype=torch.int64)
    pairs = torch.tensor(tasks, dtype=torch.int64).reshape(-1, 2).T
    return pairs[0], pairs[1]


def as_exclude(kind, pairs, tasks, B, N):
    """The exclusion in one of its forms, and the excluded columns of a row as a function."""
    by_row = {i: {c for r, c in pairs if r == i} for i in range(B)}
    both = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    if kind == "none":
        return None, lambda row: ()
    if kind == "restriction":
        gone = {c for _, c in pairs} - {c for _, c in tasks}
        return torch.tensor([c in gone for c in range(N)]), lambda row: gone
    exclude = both[0], both[1]
    if kind == "mask":
        exclude = torch.zeros(B, N, dtype=torch.bool)
        exclude[both[0], both[1]] = True
    elif kind == "index":
        exclude = KnownPositives(both[0], both[1])(torch.arange(B))
    elif kind == "lists":
        exclude = [torch.tensor(sorted(by_row[i]), dtype=torch.int64) for i in range(B)]
    elif kind == "sparse":
        exclude = csr_array((np.ones(len(pairs)), both.numpy()), shape=(B, N))
    return exclude, by_row.__getitem__


class Allocations(TorchDispatchMode):
    """The bytes of the largest storage that torch allocates, operator by operator."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {
            leaf.untyped_storage().data_ptr()
            for leaf in tree_leaves((args, kwargs))
            if torch.is_tensor(leaf)
        }
        new = [leaf.untyped_storage() for leaf in tree_leaves(result) if torch.is_tensor(leaf)]
        self.largest = max(
            [self.largest, *(part.nbytes() for part in new if part.data_ptr() not in given)]
        )
        return result


KINDS = ["none", "tuple", "mask", "lists", "sparse", "index", "restriction"]


def flagged_lines(ranks):
    """(optimistic, pessimistic, num_candidates, touched by NaN) per task, as in the reference."""
    flags = [0] * len(ranks) if ranks.flags is None else ranks.flags.tolist()
    return [(*line, bool(flag & fault.NAN)) for line, flag in zip(lines(ranks), flags, strict=True)]
