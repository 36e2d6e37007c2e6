"""Forms of target and exclude: the dtype decides, never the batch size.

Arrays are read by every function, or raise.
"""

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from scipy.sparse import coo_matrix, csr_array, csr_matrix

import reference_queries
import reference_ranks as reference
from fuzzing import cases
from ranking_problems import flagged_lines
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
from torchrankmetrics.kg import KnownPositives, rank_alignment
from torchrankmetrics.ranking import Candidates, RankAccumulator
from torchrankmetrics.ranking.arrays import as_array, as_ids, as_tensor, read_scores

N = 5
ENTRY_POINTS = {
    "rank_scores": lambda scores, target, exclude: rank_scores(scores, target, exclude=exclude),
    "rank_embeddings": lambda scores, target, exclude: rank_embeddings(
        scores, torch.eye(N), target, exclude=exclude
    ),
    "RankAccumulator": lambda x, target, exclude: RankAccumulator(
        x[:, 0], target, tuple(x.shape), exclude=exclude
    ),
    "evaluate": lambda scores, target, exclude: evaluate(scores, target, ["mr"], exclude=exclude),
    "update": lambda scores, target, exclude: RankCollection(["mr"]).update(
        scores, target, exclude=exclude
    ),
}


def mask_of(lists):
    mask = torch.zeros(len(lists), N, dtype=torch.bool)
    for i, columns in enumerate(lists):
        mask[i, columns] = True
    return mask


FORMS = {
    "lists": lambda lists: lists,
    "sets": lambda lists: [set(columns) for columns in lists],
    "tensors": lambda lists: [torch.tensor(columns, dtype=torch.int64) for columns in lists],
    "arrays": lambda lists: [np.array(columns, dtype=np.int32) for columns in lists],
    "bool": mask_of,
    "bool array": lambda lists: mask_of(lists).numpy(),
    "csr": lambda lists: csr_array(mask_of(lists).numpy().astype(float)),
    "csr matrix": lambda lists: csr_matrix(mask_of(lists).numpy()),
    "coo": lambda lists: coo_matrix(mask_of(lists).numpy().astype(np.int8)),
    "tuple": lambda lists: tuple(mask_of(lists).nonzero().T),
    "tuple of arrays": lambda lists: mask_of(lists).numpy().nonzero(),
}
LISTS = st.lists(st.integers(0, N - 1), unique=True, max_size=N).map(sorted)


@cases(60, 1500)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 3), min_size=N, max_size=N), LISTS, LISTS),
        min_size=1,
        max_size=7,
    ),
    st.sampled_from([*FORMS, "float", "float array"]),
    st.sampled_from(list(FORMS)),
    st.data(),
)
@pytest.mark.filterwarnings("ignore:queries without a relevant item")
def test_a_batch_split_in_any_way_has_the_same_ranks(rows, of_target, of_exclude, data):
    make = {
        **FORMS,
        "float": lambda x: mask_of(x).double(),
        "float array": lambda x: mask_of(x).numpy().astype("f"),
    }
    gone = [set(out) for _, _, out in rows]
    tasks = [(i, answer) for i, (_, answers, _) in enumerate(rows) for answer in answers]
    found, first = [], 0
    while first < len(rows):
        part = rows[first : first + data.draw(st.integers(1, 3))]
        scores = torch.tensor([scores for scores, _, _ in part]).float()
        target = make[of_target]([answers for _, answers, _ in part])
        exclude = make[of_exclude]([out for _, _, out in part])
        found += flagged_lines(rank_scores(scores, target, exclude=exclude))
        first += len(part)
    assert found == reference.ranks([scores for scores, _, _ in rows], tasks, gone.__getitem__)


@pytest.mark.parametrize("shape", [(1, 5), (2, 5), (3, 1), (2, 2), (4, 2), (2, 7)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
@pytest.mark.parametrize("point", ENTRY_POINTS)
@pytest.mark.parametrize(
    "convert", [torch.Tensor.clone, torch.Tensor.numpy], ids=["tensor", "array"]
)
def test_integers_with_two_dimensions_are_never_read(convert, point, dtype, shape):
    B = shape[0]
    scores, call = torch.rand(B, N), ENTRY_POINTS[point]
    integers = torch.zeros(shape, dtype=dtype)
    for name, arguments in (
        ("target", (convert(integers), None)),
        ("exclude", (torch.zeros(B, dtype=torch.int64), convert(integers))),
    ):
        remedies = rf"{name}\.tolist\(\) if these are the columns of every row"
        with pytest.raises(ValueError, match=f"{name} must not be integers.*{remedies}"):
            call(scores, *arguments)


@pytest.mark.parametrize("B", [1, 2, 3])
@pytest.mark.parametrize("point", ENTRY_POINTS)
def test_an_unknown_form_of_exclude_raises_and_names_a_form(point, B):
    scores, target = torch.rand(B, N), torch.zeros(B, dtype=torch.int64)
    for values, error, message in (
        (torch.ones(B, dtype=torch.int64), TypeError, "exclude as a mask must be bool"),
        ([1] * B, TypeError, "exclude as a mask must be bool"),
        (torch.zeros(B, N), TypeError, "exclude as a mask must be bool"),
        (
            [[True, False]] * B,
            TypeError,
            r"columns of every row, got \[True.*torch.tensor\(exclude\)",
        ),
        (
            [[1]] * (B + 1),
            ValueError,
            f"exclude as a list must have one entry per row of scores, {B};",
        ),
        (([0], [1], [2]), ValueError, r"exclude as a tuple must be \(rows, columns\)"),
        (csr_array((B, N + 1)), ValueError, "exclude as a sparse matrix must be"),
    ):
        with pytest.raises(error, match=message):
            ENTRY_POINTS[point](scores, target, values)


LABELS = [[0, 3, 0, 0.5, 0], [0, 0, 1, 0, 0]]
GRADED = {
    "float": torch.tensor(LABELS),
    "half": torch.tensor(LABELS).half(),
    "array": np.array(LABELS),
    "csr": csr_array(np.array(LABELS)),
    "coo": coo_matrix(np.array(LABELS, dtype="f")),
    "dicts": [{3: 0.5, 1: 3, 0: 0}, {2: 1}],
}


@pytest.mark.parametrize("form", GRADED)
@pytest.mark.parametrize("point", ["rank_scores", "rank_embeddings"])
def test_labels_are_gains_of_the_tasks(point, form):
    ranks = ENTRY_POINTS[point](torch.rand(2, N), GRADED[form], None)
    assert ranks.gain.dtype == torch.float64
    assert sorted(zip(ranks.rows[0].tolist(), ranks.gain.tolist(), strict=True)) == [
        (0, 0.5),
        (0, 3),
        (1, 1),
    ]


def test_labels_of_one_are_no_gains_and_labels_of_exclude_are_ignored():
    assert rank_scores(torch.rand(2, N), [{1: 1.0}, {2: 1}]).gain is None
    grades = csr_array(np.array([[0, -3, 0, 0, 0]]))
    assert rank_scores(torch.rand(1, N), [0], exclude=grades).num_candidates.tolist() == [4]
    with pytest.raises(
        ValueError, match=r"target must contain finite labels of at least 0, got -3\.0"
    ):
        rank_scores(torch.rand(1, N), grades)
    with pytest.raises(TypeError, match="exclude as a list must contain the columns of every row"):
        rank_scores(torch.rand(1, N), [0], exclude=[{1: 1}])


@pytest.mark.parametrize(
    "mixed", [[{1: 1}, [2]], [[2], {1: 1}]], ids=["labels first", "columns first"]
)
def test_rows_are_all_labels_or_all_columns(mixed):
    with pytest.raises(TypeError, match="target as a list must contain the columns of every row"):
        rank_scores(torch.rand(2, N), mixed)


def test_weights_and_groups_of_pairs_are_of_tasks_and_of_labels_of_rows():
    scores, weight, mask = torch.rand(2, N), [1.0, 2.0], mask_of([[0], [1, 2]])
    three = (torch.tensor([0, 1, 1]), torch.tensor([0, 1, 2]))
    for target in ([[0], [1, 2]], mask, mask.float(), csr_array(mask)):
        assert RankCollection(["count"])(scores, target, weight=weight)["count"] == 3
    for target in (three, tuple(torch.stack(three))):
        assert RankCollection(["count"])(scores, target, weight=[1.0, 2.0, 2.0])["count"] == 3
        with pytest.raises(ValueError, match=r"weight must be \(tasks,\) = \(3,\)"):
            RankCollection(["count"]).update(scores, target, weight=weight)


METRICS = ["ap", *(name for name in list(reference_queries.NAMES)[::3] if name != "ap")]


@pytest.mark.filterwarnings("ignore:relevant items of one query")  # the task metrics are on purpose
@pytest.mark.parametrize("form", ["lists", "pairs", "bool"])
def test_ranks_of_embeddings_and_chunks_carry_their_queries(form):
    generator = torch.Generator().manual_seed(0)
    # exact products, many ties
    questions = torch.randint(-4, 5, (12, 3), generator=generator).float()
    passages = torch.randint(-4, 5, (40, 3), generator=generator).float()
    relevant = torch.rand(12, 40, generator=generator) < 0.1
    relevant[:, 3] = True
    lists = [row.nonzero()[:, 0].tolist() for row in relevant]
    target = {"lists": lists, "pairs": tuple(relevant.nonzero().T), "bool": relevant}[form]
    scores = questions @ passages.T
    expected = evaluate(scores, relevant, [*METRICS, "mrr"])
    queries = [(row, answers, (), 1.0) for row, answers in zip(scores.tolist(), lists, strict=True)]
    assert expected["ap"] == pytest.approx(reference_queries.mean("ap", queries), abs=1e-12)

    chunked = RankAccumulator(scores[relevant], target, (12, 40))
    for part in scores.split(7, dim=1):
        chunked.update(part)
    for ranks in (
        rank_embeddings(questions, passages, target),
        rank_scores(scores, target),
        chunked.compute(),
    ):
        assert evaluate(ranks, metrics=[*METRICS, "mrr"]) == expected
        assert evaluate(RankTable.from_ranks(ranks), metrics=METRICS) == {
            key: expected[key] for key in METRICS
        }
        collection = RankCollection([*METRICS, "mrr"], storage="counts")
        collection.update(ranks)
        assert {key: value.item() for key, value in collection.compute().items()} == expected


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
    "rank_scores target pairs": (PAIRS, lambda x: rank_scores(S, tuple(x))),
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
    "KnownPositives": (T, lambda x: pairs_of(KnownPositives(x, T), T)),
    "rank_triples triples": (
        TRIPLES,
        lambda x: rows(rank_triples(lambda h, r: S[h], None, x, KNOWN)),
    ),
    "rank_triples candidates": (
        T,
        lambda x: rows(rank_triples(lambda h, r: S[h], None, TRIPLES, None, candidates=x)),
    ),
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
    "masked array": (
        lambda x: np.ma.array(x.numpy(), mask=x.numpy() == x.numpy().flat[0]),
        "masked",
    ),
    "sparse": (lambda x: x.to_sparse(), r"to_dense\(\)"),
    "sparse rows": (lambda x: x.to_sparse_csr() if x.ndim == 2 else x.to_sparse(), r"to_dense\(\)"),
    "quantized": (
        lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
        r"dequantize\(\)",
    ),
    "nested": (lambda x: torch.nested.nested_tensor([x, x]), "to_padded_tensor"),
    "jagged": (
        lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
        "to_padded_tensor",
    ),
    "masked tensor": (lambda x: torch.masked.masked_tensor(x, x > 0), "to_tensor"),
    "meta": (lambda x: x.to("meta"), "meta"),
}
ERROR = r"^[\w.\[\]()]+ must (be a dense|be on a device|not be).*"
READERS = {
    "as_tensor": (S, lambda x: as_tensor(x, "x")),
    "as_tensor of bool": (CELLS, lambda x: as_tensor(x, "x")),
    "as_array": (S, lambda x: torch.from_numpy(np.array(as_array(x, "x"), dtype=np.float64))),
    "as_ids": (T, lambda x: as_ids(x, "x")),
    "read_scores": (S, lambda x: read_scores(x, "x")),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reader", READERS)
def test_every_kind_is_read_as_the_plain_one_or_is_an_error(reader):
    plain, read = READERS[reader]
    for kind, make in SAME.items():
        assert torch.equal(read(make(plain)), read(plain)), kind
    for make, remedy in WRONG.values():
        with pytest.raises((TypeError, ValueError), match=ERROR + remedy):
            read(make(plain))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("kind", ["packed field", "big-endian", "gradient"])
def test_every_entry_reads_arrays(kind, entry):
    plain, call = ENTRIES[entry]
    expected = repr(call(plain))
    assert repr(call(SAME[kind](plain))) == expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("kind", ["masked array", "sparse", "quantized"])
def test_every_entry_checks_tensors(kind, entry):
    plain, call = ENTRIES[entry]
    make, remedy = WRONG[kind]
    with pytest.raises((TypeError, ValueError), match=ERROR + remedy):
        call(make(plain))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_candidates_of_float8_are_ranked_as_their_numbers(dtype):
    queries, candidates = (
        torch.randn(n, 8, generator=torch.Generator().manual_seed(n)).to(dtype) for n in (5, 9)
    )
    target = torch.arange(5)
    expected = rank_scores(queries.double() @ candidates.double().T, target)
    for stored in (candidates, Candidates(candidates)):
        assert repr(rank_embeddings(queries, stored, target)) == repr(expected)
    pairs = target[:, None].expand(5, 2)
    found = rank_alignment(pairs, queries, candidates, candidates="all").select(side="tail")
    assert repr(found.ranks) == repr(expected)
    bias = torch.randn(9, generator=torch.Generator().manual_seed(1)).to(dtype)
    expected = rank_scores(queries.double() @ candidates.double().T + bias.double(), target)
    assert repr(rank_embeddings(queries, candidates, target, bias=bias)) == repr(expected)
