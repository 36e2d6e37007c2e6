"""Bad input of every function that ranks: errors name the argument, its value, what is expected."""

from functools import partial

import pytest
import torch

from torchrankmetrics import Ranks, rank_embeddings, rank_scores
from torchrankmetrics.kg import KnownPositives
from torchrankmetrics.ranking import Candidates, RankAccumulator

SCORES, ROWS = torch.zeros(3, 5), torch.arange(3)
Q, E, T = torch.ones(1, 2), torch.ones(4, 2), torch.tensor([1])
ONE, LONG = torch.zeros(1), torch.int64


def scores(scores=SCORES, target=ROWS, **options):
    return partial(rank_scores, scores, target, **options)


def exclude(exclude):
    return scores(exclude=exclude)


def embed(queries=Q, candidates=E, target=T, **options):
    return partial(rank_embeddings, queries, candidates, target, **options)


def chunks(true=ONE, target=T, shape=(1, 4), chunk=None, **options):
    def call():
        accumulator = RankAccumulator(true, target, shape, **options)
        if chunk is not None:
            accumulator.update(chunk)
        accumulator.compute()

    return call


def ranks(*args):
    return partial(Ranks, *args)


def negatives(positive, negative):
    return partial(Ranks.from_negatives, positive, negative)


def full(num_candidates, given=5):
    return lambda: Ranks([1, 1], None, given).full_rank_estimate(num_candidates)


BAD = {
    "not a tensor": (scores([[1.0]]), TypeError, "scores"),
    "one dimension": (scores(torch.zeros(5)), ValueError, "scores"),
    "no candidate": (scores(torch.zeros(3, 0)), ValueError, "scores"),
    "complex": (scores(torch.zeros(3, 2).cfloat()), TypeError, "scores"),
    "target above": (
        scores(target=torch.tensor([0, 5, 0])),
        IndexError,
        r"target.*\[0, 5\).*target\[1\] is 5",
    ),
    "target negative": (
        scores(target=torch.tensor([0, 0, -1])),
        IndexError,
        r"target.*target\[2\] is -1",
    ),
    "target bool": (scores(target=torch.tensor([True, False, True])), TypeError, "target.*bool"),
    "target short": (scores(target=torch.tensor([0, 1])), ValueError, r"target.*\(3,\).*\(2,\)"),
    "target (B, 1)": (
        scores(target=torch.tensor([[0], [1], [2]])),
        ValueError,
        r"target.tolist\(\)",
    ),
    "target (2, 1), B = 2": (
        scores(SCORES[:2], torch.tensor([[0], [1]])),
        ValueError,
        "target.*tuple",
    ),
    "target row above": (
        scores(target=(torch.tensor([0, 3]), torch.tensor([0, 0]))),
        IndexError,
        "target.*task 1.*row 3",
    ),
    "target of no row": (
        scores(SCORES[:0], (torch.tensor([0]), torch.tensor([0]))),
        IndexError,
        "target",
    ),
    "target tuple uneven": (scores(target=(T, torch.tensor([0, 1]))), ValueError, "target"),
    "target elsewhere": (scores(target=ROWS.to("meta")), ValueError, "target.*device.*cpu"),
    "backend": (scores(backend="fast"), ValueError, "backend must be one of 'auto', .*'fast'"),
    "exclude above": (exclude((torch.tensor([0]), torch.tensor([5]))), IndexError, "exclude.*5"),
    "exclude row": (exclude((torch.tensor([3]), torch.tensor([0]))), IndexError, "exclude"),
    "exclude float": (exclude(torch.zeros(2, 1)), TypeError, "exclude.*float32"),
    "exclude (3, P)": (exclude(torch.zeros(3, 1).long()), ValueError, "exclude"),
    "exclude a string": (exclude("all"), TypeError, "exclude"),
    "mask shape": (exclude(torch.zeros(5, 3).bool()), ValueError, r"exclude.*\(3, 5\)"),
    "restriction shape": (exclude(torch.zeros(3).bool()), ValueError, "exclude"),
    "restricted target": (
        exclude(torch.eye(5)[1].bool()),
        ValueError,
        "target.*column 1 of task 1",
    ),
    "other queries": (exclude(KnownPositives([0], [1])(torch.arange(2))), ValueError, "exclude.*3"),
    "index too wide": (
        exclude(KnownPositives([0], [5])(torch.arange(3))),
        IndexError,
        "exclude.*5",
    ),
    "exclude elsewhere": (exclude(torch.zeros(5).bool().to("meta")), ValueError, "exclude.*device"),
    "true shape": (chunks(torch.zeros(2)), ValueError, "true_scores"),
    "target of chunks": (chunks(target=T + 3), IndexError, "target"),
    "rows": (chunks(chunk=torch.zeros(2, 4)), ValueError, "scores"),
    "too many": (chunks(chunk=torch.zeros(1, 5)), ValueError, "4 columns left"),
    "dtype": (chunks(chunk=torch.zeros(1, 4).half()), TypeError, "scores.*half|16"),
    "device": (chunks(chunk=torch.zeros(1, 4, device="meta")), ValueError, "scores.*device"),
    "too few": (chunks(), ValueError, "compute.*4.*0"),
    "width": (embed(torch.ones(1, 3)), ValueError, "queries.*candidates"),
    "no candidates": (
        embed(candidates=Candidates(E[:0])),
        ValueError,
        r"candidates \(N, d\) with N >= 1, got",
    ),
    "integers": (embed(Q.int(), E.int()), TypeError, "int32"),
    "integers stored": (
        lambda: Candidates(E.long()),
        TypeError,
        "candidates must be floats, got torch.int64",
    ),
    "dtypes": (embed(candidates=Candidates(E.double())), TypeError, "share a float dtype"),
    "similarity": (embed(similarity="euclid"), ValueError, "similarity.*l2.*euclid"),
    "chunk": (embed(chunk_size=0), ValueError, "chunk_size"),
    "bias shape": (
        lambda: Candidates(E, torch.ones(3)),
        ValueError,
        r"bias must be \(N,\) = \(4,\), got \(3,\)",
    ),
    "bias type": (
        embed(bias=[0.0] * 4),
        TypeError,
        "bias must be a torch.Tensor or an array .*, got list",
    ),
    "bias twice": (
        embed(candidates=Candidates(E), bias=torch.ones(4)),
        ValueError,
        "hold their own",
    ),
    "bias of cosine": (
        embed(bias=torch.ones(4), similarity="cosine"),
        ValueError,
        "cosine it must be None",
    ),
    "backend of embeddings": (embed(backend="fast"), ValueError, "backend must be one of"),
    "process group": (
        embed(process_group="WORLD"),
        TypeError,
        "must be a torch.distributed.ProcessGroup, got str",
    ),
    "offset": (
        embed(offset=0),
        ValueError,
        "offset is for candidates in slices: without a process_group it must be",
    ),
    "number": (
        embed(num_candidates=4),
        ValueError,
        "num_candidates is for candidates in slices: without a process",
    ),
    "float ranks": (ranks([1.5], None, 5), TypeError, "optimistic.*float64"),
    "bool ranks": (
        ranks([True, True], None, 4),
        TypeError,
        "optimistic must contain integers, got torch.bool",
    ),
    "float counts": (ranks([1], [2], [5.0]), TypeError, "num_candidates"),
    "two dimensions": (ranks([[1]], None, 5), ValueError, r"optimistic.*\(1, 1\)"),
    "shapes": (ranks([1, 2], [2], 5), ValueError, r"pessimistic.*\(2,\).*\(1,\)"),
    "devices": (
        ranks(T, torch.empty(1, dtype=LONG, device="meta"), 5),
        ValueError,
        "pessimistic.*device",
    ),
    "rank 0": (
        ranks([1, 0], None, 5),
        ValueError,
        "ranks must start at 1, but task 1 has rank 0",
    ),
    "pessimistic above": (
        ranks([1], [6], 5),
        ValueError,
        "must lie between .* pessimistic 6, num_candidates 5",
    ),
    "order": (
        ranks([1, 3], [1, 2], 5),
        ValueError,
        "optimistic ranks must not be above pessimistic ranks; task 1",
    ),
    "zero candidates": (
        ranks([1, 1], None, [2, 0]),
        ValueError,
        "num_candidates must be at least 1.*; task 1",
    ),
    "positive": (negatives(torch.zeros(2, 1), torch.zeros(2, 3)), ValueError, "positive"),
    "negatives": (negatives(torch.zeros(2), torch.zeros(3, 3)), ValueError, r"negatives.*\(3, 3\)"),
    "dtype of negatives": (
        negatives(torch.zeros(2), torch.zeros(2, 3).double()),
        TypeError,
        "dtype",
    ),
    "complex negatives": (
        negatives(torch.zeros(2).cfloat(), torch.zeros(2, 3).cfloat()),
        TypeError,
        "real",
    ),
    "negatives elsewhere": (
        negatives(torch.zeros(2), torch.zeros(2, 3, device="meta")),
        ValueError,
        "device",
    ),
    "fewer in all": (
        full(4),
        ValueError,
        "num_candidates of all candidates; task 0 has 4 negatives, num_cand",
    ),
    "shape of all": (
        full(torch.tensor([9])),
        ValueError,
        r"num_candidates must have the shape of optimistic, \(2,\)",
    ),
    "float of all": (full(9.0), ValueError, r"num_candidates must be \(tasks,\)"),
    "no negative": (
        full(9, [5, 1]),
        ValueError,
        r"needs a sampled negative in every task.* task 1 has 0 negatives",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()
