"""Kinds of arrays: each is read as the plain one, or is an error with argument and remedy; every entry reads them."""

import numpy as np
import pandas as pd
import pytest
import torch

from torchrankmetrics import (
    KnownTriples,
    RankCollection,
    RankMetric,
    Ranks,
    RankTable,
    compare,
    evaluate,
    rank_embeddings,
    rank_scores,
    rank_triples,
)
from torchrankmetrics.kg import KnownAnswers, rank_alignment
from torchrankmetrics.ranking import Candidates, RankAccumulator
from torchrankmetrics.ranking.arrays import as_array, as_ids, as_tensor, read_scores

S = torch.tensor([[0.3, 0.9, 0.1], [0.8, 0.2, 0.5], [0.1, 0.4, 0.7]])
T = torch.tensor([1, 2, 0])
CELLS = torch.tensor([[True, False, False], [False, False, True], [False, False, True]])
PAIRS = torch.tensor([[0, 1, 2], [0, 0, 1]])
TRIPLES = torch.tensor([[0, 0, 1], [1, 0, 2], [2, 0, 0]])
WEIGHT = torch.tensor([1.0, 2.0, 4.0])
RANKS = Ranks([1, 2, 3], None, 9)
KNOWN = KnownTriples(TRIPLES)


def update(preds=S, target=T, **columns):
    metric = RankCollection(["mr", "ap"])
    metric.update(preds, target, **columns)
    return metric.table().rows.tolist()


def rows(table):
    return table.rows.tolist()


def accumulate(scores=S, true=S[[0, 1, 2], T], target=T, exclude=None):
    ranks = RankAccumulator(true, target, (3, 3), exclude=exclude)
    ranks.update(scores)
    return ranks.compute()


def from_numpy(**columns):
    return rows(RankTable.from_numpy({"optimistic": [1, 2, 3], "num_candidates": 9} | columns))


def pairs_of(known, *ids):
    return known(*ids).pairs().tolist()


ENTRIES = {
    "rank_scores scores": (S, lambda x: rank_scores(x, T)),
    "rank_scores target": (T, lambda x: rank_scores(S, x)),
    "rank_scores target bool": (CELLS, lambda x: rank_scores(S, x)),
    "rank_scores target pairs": (PAIRS, lambda x: rank_scores(S, x)),
    "rank_scores target rows, columns": (T, lambda x: rank_scores(S, (x, x))),
    "rank_scores target lists": (T, lambda x: rank_scores(S, [x, x, x])),
    "rank_scores exclude": (CELLS, lambda x: rank_scores(S, T, exclude=x)),
    "evaluate scores": (S, lambda x: evaluate(x, T)),
    "evaluate ranks": (T + 1, lambda x: evaluate(x, 9)),
    "update preds": (S, lambda x: update(x)),
    "update weight": (WEIGHT, lambda x: update(weight=x)),
    "update group": (T, lambda x: update(group=x)),
    "update query": (T, lambda x: update(query=x)),
    "update indexes": (T, lambda x: update(S[0], CELLS[0], indexes=x)),
    "rank_embeddings queries": (S, lambda x: rank_embeddings(x, S, T)),
    "rank_embeddings candidates": (S, lambda x: rank_embeddings(S, x, T)),
    "rank_embeddings bias": (WEIGHT, lambda x: rank_embeddings(S, S, T, bias=x)),
    "Candidates": (S, lambda x: rank_embeddings(S, Candidates(x), T)),
    "RankAccumulator true_scores": (S[0], lambda x: accumulate(true=x)),
    "Ranks optimistic": (T + 1, lambda x: Ranks(x, None, 9)),
    "Ranks num_candidates": (T + 3, lambda x: Ranks([1, 2, 3], None, x)),
    "Ranks.from_negatives positive": (S[0], lambda x: Ranks.from_negatives(x, S)),
    "Ranks.from_negatives negatives": (S, lambda x: Ranks.from_negatives(S[0], x)),
    "Ranks.from_negatives exclude": (CELLS, lambda x: Ranks.from_negatives(S[0], S, exclude=x)),
    "RankTable.from_ranks weight": (WEIGHT, lambda x: rows(RankTable.from_ranks(RANKS, weight=x))),
    "RankTable.from_numpy optimistic": (T + 1, lambda x: from_numpy(optimistic=x)),
    "RankTable.from_numpy weight": (WEIGHT, lambda x: from_numpy(weight=x)),
    "KnownTriples": (TRIPLES, lambda x: pairs_of(KnownTriples(x).tails, T, 0 * T)),
    "KnownTriples.tails": (T, lambda x: pairs_of(KNOWN.tails, x, x)),
    "KnownAnswers": (T, lambda x: pairs_of(KnownAnswers(x, T), T)),
    "rank_triples triples": (TRIPLES, lambda x: rows(rank_triples(lambda h, r: S[h], None, x, KNOWN))),
    "rank_triples candidates": (T, lambda x: rows(rank_triples(lambda h, r: S[h], None, TRIPLES, None, candidates=x))),
    "rank_triples scores": (S, lambda x: rows(rank_triples(lambda h, r: x, None, TRIPLES, KNOWN))),
    "rank_alignment pairs": (TRIPLES[:, ::2], lambda x: rows(rank_alignment(x, S))),
    "compare cluster": (T, lambda x: compare(RANKS, Ranks([2, 1, 4], None, 9), "mr", cluster=x)),
    "RankMetric.moments": (T + 1, lambda x: RankMetric("mr").moments(x)),
}


def packed(array):
    """A field of records of one byte more, so its stride is not a multiple of its size."""
    records = np.zeros(array.shape, dtype=[("pad", "u1"), ("field", array.dtype)])
    records["field"] = array
    return records["field"]


SAME = {
    "array": lambda x: x.numpy(),
    "read-only": lambda x: np.frombuffer(x.numpy().tobytes(), x.numpy().dtype).reshape(x.shape),
    "negative strides": lambda x: x.flip(-1).numpy()[..., ::-1],
    "packed field": lambda x: packed(x.numpy()),
    "big-endian": lambda x: x.numpy().astype(x.numpy().dtype.newbyteorder(">")),
    "column-major": lambda x: np.asfortranarray(x.numpy()),
    "masked array without masked values": lambda x: np.ma.array(x.numpy()),
    "pandas": lambda x: (pd.Series if x.ndim == 1 else pd.DataFrame)(x.numpy()),
    "gradient": lambda x: x.clone().requires_grad_() if x.is_floating_point() else x,
    "negative bit": lambda x: torch.complex(-x, -x).conj().imag if x.is_floating_point() else x,
}
WRONG = {
    "masked array": (lambda x: np.ma.array(x.numpy(), mask=x.numpy() == x.numpy().flat[0]), "masked"),
    "sparse": (lambda x: x.to_sparse(), r"to_dense\(\)"),
    "sparse rows": (lambda x: x.to_sparse_csr() if x.ndim == 2 else x.to_sparse(), r"to_dense\(\)"),
    "quantized": (lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8), r"dequantize\(\)"),
    "nested": (lambda x: torch.nested.nested_tensor([x, x]), "to_padded_tensor"),
    "jagged": (lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged), "to_padded_tensor"),
    "masked tensor": (lambda x: torch.masked.masked_tensor(x, x > 0), "to_tensor"),
    "meta": (lambda x: x.to("meta"), "meta"),
}
pytestmark = pytest.mark.filterwarnings("ignore")


ERROR = r"^[\w.\[\]()]+ must (be a dense|be on a device|not be).*"
READERS = {
    "as_tensor": (S, lambda x: as_tensor(x, "x")),
    "as_tensor of bool": (CELLS, lambda x: as_tensor(x, "x")),
    "as_array": (S, lambda x: torch.from_numpy(np.array(as_array(x, "x"), dtype=np.float64))),
    "as_ids": (T, lambda x: as_ids(x, "x")),
    "read_scores": (S, lambda x: read_scores(x, "x")),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_kind_is_read_as_the_plain_one_or_is_an_error(reader):
    plain, read = READERS[reader]
    for kind, make in SAME.items():
        assert torch.equal(read(make(plain)), read(plain)), kind
    for make, remedy in WRONG.values():
        with pytest.raises((TypeError, ValueError), match=ERROR + remedy):
            read(make(plain))


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_reads_arrays_and_checks_tensors(entry):
    plain, call = ENTRIES[entry]
    expected = repr(call(plain))
    for kind in ("packed field", "big-endian", "gradient"):
        assert repr(call(SAME[kind](plain))) == expected
    for kind in ("masked array", "sparse", "quantized"):
        make, remedy = WRONG[kind]
        with pytest.raises((TypeError, ValueError), match=ERROR + remedy):
            call(make(plain))


@pytest.mark.parametrize("arithmetic", ["exact", "product"])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_candidates_of_float8_are_ranked_as_their_numbers(dtype, arithmetic):
    queries, candidates = (torch.randn(n, 8, generator=torch.Generator().manual_seed(n)).to(dtype) for n in (5, 9))
    target = torch.arange(5)
    expected = rank_scores(queries.double() @ candidates.double().T, target)
    for given in (candidates, Candidates(candidates)):
        assert repr(rank_embeddings(queries, given, target, arithmetic=arithmetic)) == repr(expected)
    pairs = target[:, None].expand(5, 2)
    found = rank_alignment(pairs, queries, candidates, candidates="all", arithmetic=arithmetic).select(side="tail")
    assert repr(found.ranks) == repr(expected)
