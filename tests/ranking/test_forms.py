"""The forms of target and exclude: the dtype decides, never the batch size, in every function that takes them."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.sparse import coo_matrix, csr_array, csr_matrix

import reference_ranks as reference
from fuzzing import cases
from ranking_problems import flagged_lines
from torchrankmetrics import RankCollection, evaluate, rank_embeddings, rank_scores
from torchrankmetrics.ranking import RankAccumulator

N = 5
ENTRY_POINTS = {
    "rank_scores": lambda scores, target, exclude: rank_scores(scores, target, exclude=exclude),
    "rank_embeddings": lambda scores, target, exclude: rank_embeddings(scores, torch.eye(N), target, exclude=exclude),
    "RankAccumulator": lambda x, target, exclude: RankAccumulator(x[:, 0], target, tuple(x.shape), exclude=exclude),
    "evaluate": lambda scores, target, exclude: evaluate(scores, target, ["mr"], exclude=exclude),
    "update": lambda scores, target, exclude: RankCollection(["mr"]).update(scores, target, exclude=exclude),
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
    st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=N, max_size=N), LISTS, LISTS), min_size=1, max_size=7),
    st.sampled_from([*FORMS, "float", "float array"]),
    st.sampled_from(list(FORMS)),
    st.data(),
)
@pytest.mark.filterwarnings("ignore:queries without a relevant item")
def test_a_batch_split_in_any_way_has_the_same_ranks(rows, of_target, of_exclude, data):
    make = {**FORMS, "float": lambda x: mask_of(x).double(), "float array": lambda x: mask_of(x).numpy().astype("f")}
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


@pytest.mark.parametrize("B", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("point", ENTRY_POINTS)
def test_integers_that_could_be_labels_or_pairs_or_columns_raise_for_every_batch_size(point, dtype, B):
    scores, call = torch.rand(B, N), ENTRY_POINTS[point]
    labels, columns = torch.eye(B, N).to(dtype), torch.zeros(B, 1, dtype=dtype)
    target = torch.zeros(B, dtype=torch.int64)
    for convert in (torch.Tensor.clone, torch.Tensor.numpy):
        with pytest.raises(ValueError, match=r"target of integers must be pairs.*target.float\(\).*\(rows, columns\)"):
            call(scores, convert(labels), None)
        with pytest.raises(ValueError, match=r"exclude of integers must be pairs.*exclude > 0.*\(rows, columns"):
            call(scores, target, convert(labels))
        for name, given_ in (("target", (convert(columns), None)), ("exclude", (target, convert(columns)))):
            with pytest.raises(ValueError, match=rf"{name} of integers must be pairs.*{name}.tolist\(\), or pairs"):
                call(scores, *given_)


@pytest.mark.parametrize("B", [1, 2, 3])
@pytest.mark.parametrize("point", ENTRY_POINTS)
def test_an_unknown_form_of_exclude_raises_and_names_a_form(point, B):
    scores, target = torch.rand(B, N), torch.zeros(B, dtype=torch.int64)
    for values, error, message in (
        (torch.ones(B, dtype=torch.int64), TypeError, "exclude as a mask must be bool"),
        ([1] * B, TypeError, "exclude as a mask must be bool"),
        (torch.zeros(B, N), TypeError, "exclude as a mask must be bool"),
        ([[True, False]] * B, TypeError, r"columns of every row, got \[True.*torch.tensor\(exclude\)"),
        ([[1]] * (B + 1), ValueError, f"exclude as a list must have one entry for each of {B} rows"),
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
    assert sorted(zip(ranks.rows[0].tolist(), ranks.gain.tolist(), strict=True)) == [(0, 0.5), (0, 3), (1, 1)]


def test_labels_of_one_are_no_gains_and_labels_of_exclude_are_ignored():
    ranks = rank_scores(torch.rand(2, N), [{1: 1.0}, {2: 1}])
    assert ranks.gain is None
    grades = csr_array(np.array([[0, -3, 0, 0, 0]]))
    assert rank_scores(torch.rand(1, N), [0], exclude=grades).num_candidates.tolist() == [4]
    with pytest.raises(ValueError, match=r"target must hold finite labels of at least 0, got -3\.0"):
        rank_scores(torch.rand(1, N), grades)
    with pytest.raises(TypeError, match="exclude as a list must hold the columns of every row"):
        rank_scores(torch.rand(1, N), [0], exclude=[{1: 1}])
    for mixed in ([{1: 1}, [2]], [[2], {1: 1}]):
        with pytest.raises(TypeError, match="target as a list must hold the columns of every row"):
            rank_scores(torch.rand(2, N), mixed)


def test_weights_and_groups_of_pairs_are_of_tasks_and_of_labels_of_rows():
    scores, weight, mask = torch.rand(2, N), [1.0, 2.0], mask_of([[0], [1, 2]])
    three = (torch.tensor([0, 1, 1]), torch.tensor([0, 1, 2]))
    for target in ([[0], [1, 2]], mask, mask.float(), csr_array(mask)):
        assert RankCollection(["count"])(scores, target, weight=weight)["count"] == 3
    for target in (three, torch.stack(three)):
        assert RankCollection(["count"])(scores, target, weight=[1.0, 2.0, 2.0])["count"] == 3
        with pytest.raises(ValueError, match=r"weight must be \(tasks,\) = \(3,\)"):
            RankCollection(["count"]).update(scores, target, weight=weight)
