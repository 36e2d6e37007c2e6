"""Everything on a second device: bits of the CPU, and nothing in an update that waits for it."""

import itertools
from functools import partial

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import reference_ranks as reference
import standin
from bits import bits
from fuzzing import cases
from ranking_problems import (
    KINDS as ALL_KINDS,
    STRIDES,
    as_exclude,
    as_target,
    flagged_lines,
    lay_out,
    problems,
)
from test_rank_scores import EXCLUSIONS, SIMILARITIES, tasks_and_exclusions
from torchrankmetrics import (
    MeanReciprocalRank,
    RankCollection,
    RankMetricWarning,
    Ranks,
    RankTable,
    rank_embeddings,
    rank_scores,
    rank_triples,
)
from torchrankmetrics.kg import EmbeddingScorer, KnownPositives, KnownTriples
from torchrankmetrics.ranking import RankAccumulator, tiles
from torchrankmetrics.ranking.counting import Excluded
from torchrankmetrics.ranking.ranks import rank_dense, trusted

# made on the host: a copy waits
KINDS = [kind for kind in ALL_KINDS if kind not in ("lists", "sparse")]
NAMES = ["mrr", "z_mrr", "amri", "hits_at_3", "median_rank", "tie_rate", "expected_mrr", "count"]

pytestmark = pytest.mark.filterwarnings("ignore:the interval of:torchrankmetrics.RankMetricWarning")


device = pytest.fixture(standin.device, scope="module")


def moved(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return tuple(part.to(device) for part in value) if isinstance(value, tuple) else value


def excluded(kind, pairs, tasks, B, N, device):
    """As ``as_exclude``, with slices that were looked up on the device."""
    exclude, gone = as_exclude(kind, pairs, tasks, B, N)
    if kind != "index":
        return moved(exclude, device), gone
    known = KnownPositives(*torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T).to(device)
    rows = torch.arange(B, device=device)
    with standin.no_waiting():
        return known(rows), gone


def back(ranks):
    assert ranks.columns.device.type == standin.NAME
    return trusted(ranks.columns.cpu(), None if ranks.flags is None else ranks.flags.cpu())


SIZES = st.lists(st.integers(1, 4), min_size=9, max_size=9)


@cases(60, 1500)
@given(
    problem=problems(), strides=st.sampled_from(STRIDES), sizes=SIZES, kind=st.sampled_from(KINDS)
)
def test_scores_and_chunks_rank_by_the_definition_and_nothing_waits(
    device, problem, strides, sizes, kind
):
    rows, B, N, form, tasks, pairs = problem
    whole = torch.tensor(rows).reshape(B, N)
    scores = lay_out(whole.to(device), strides)
    true = torch.tensor([rows[row][column] for row, column in tasks], dtype=whole.dtype).to(device)
    target = moved(as_target(form, tasks), device)
    exclude, gone = excluded(kind, pairs, tasks, B, N, device)
    ends = torch.tensor([0, *sizes]).cumsum(0).clamp(max=N).tolist()
    chunks = [whole[:, left:right].to(device) for left, right in itertools.pairwise(ends)]
    with standin.no_waiting():
        accumulator = RankAccumulator(true, target, (B, N), exclude=exclude)
        for chunk in chunks:
            accumulator.update(chunk)
        found = rank_scores(scores, target, exclude=exclude), accumulator.compute()
    for ranks in found:
        assert flagged_lines(back(ranks)) == reference.ranks(rows, tasks, gone)


@pytest.mark.parametrize("similarity", sorted(SIMILARITIES))
@pytest.mark.parametrize("kind", EXCLUSIONS)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("has_float64", [True, False])
def test_embeddings_rank_as_on_the_cpu(device, similarity, kind, several, has_float64, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    B, N = 5, 40
    queries, candidates = (torch.randn(n, 6, generator=generator) for n in (B, N))
    candidates[20:] = candidates[:20].clone()
    target, exclusions = tasks_and_exclusions(generator, B, N, several)
    options = {"similarity": similarity, "chunk_size": 7}
    expected = rank_embeddings(queries, candidates, target, exclude=exclusions[kind], **options)
    there = [moved(value, device) for value in (queries, candidates, target)]
    exclude = moved(exclusions[kind], device)
    if kind == "known":
        known = KnownPositives(*exclusions["mask"].nonzero().T).to(device)
        exclude = known(torch.arange(B, device=device).flip(0))
    if not has_float64:  # as on MPS
        monkeypatch.setattr(tiles, "_NO_FLOAT64", {standin.NAME})
    ranks = rank_embeddings(*there, exclude=exclude, **options)
    assert flagged_lines(back(ranks)) == flagged_lines(expected)


def test_the_best_candidates_are_those_of_the_cpu(device):
    entities = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    triples = torch.tensor([[0, 0, 1], [3, 0, 2]])
    found = []
    for place in ("cpu", device):
        table = entities.to(place)
        score = EmbeddingScorer(lambda h, r, table=table: table[h], table, similarity="cosine")
        ranked = rank_triples(score, None, triples.to(place), None, top_k=3, progress=False)
        found.append((ranked.rows.tolist(), ranked.answers.to_csv()))
        assert score(triples[:, 0].to(place), None).device.type == torch.device(place).type
    assert found[0] == found[1]


def batch(seed, place="cpu"):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 4, (6, 9), generator=generator).float()
    columns = {
        "group": torch.randint(0, 3, (6,), generator=generator),
        "weight": torch.randint(0, 3, (6,), generator=generator) + 0.5,
        "sample_id": torch.randperm(30, generator=generator)[:6] * 100 + seed,
    }
    target = torch.randint(0, 9, (6,), generator=generator)
    return (
        scores.to(place),
        target.to(place),
        {name: column.to(place) for name, column in columns.items()},
    )


def filled(make, place, seeds=(1, 2, 3)):
    metric = make().to(place)
    for seed in seeds:
        scores, target, columns = batch(seed, place)
        metric.update(scores, target, **columns)
    return metric


collection = partial(RankCollection, NAMES)


@pytest.mark.parametrize("storage", ["ranks", "counts"])
def test_collections_have_the_values_of_the_cpu(device, storage):
    metric, cpu = (filled(partial(collection, storage=storage), place) for place in (device, "cpu"))
    assert all(value.device.type == standin.NAME for value in metric.compute().values())
    assert bits(metric) == bits(cpu)
    assert torch.equal(metric.table().rows, cpu.table().rows)
    for name, options in (
        ("summary", {}),
        ("breakdown", {}),
        ("confidence_intervals", {"method": "bootstrap"}),
    ):
        assert str(getattr(metric, name)(**options)) == str(getattr(cpu, name)(**options))


def test_an_update_waits_for_nothing(device):
    metric, of_a_side = collection().to(device), MeanReciprocalRank(side="head").to(device)
    sampled = torch.rand(6, 4).to(device)
    known = KnownTriples((torch.arange(9) % 4, torch.zeros(9).long(), torch.arange(9)))
    known.tails(*torch.zeros(2, 1).long().to(device))  # from here on the index is on the device
    for seed in range(3):
        scores, target, columns = batch(seed, device)
        pairs = (torch.arange(6, device=device), target.flip(0))
        with standin.no_waiting():
            rank_dense(
                scores,
                target,
                Excluded(slices=known.tails(target, 0 * target), columns=scores[0] > 9),
            )
            for exclude in (None, known.tails(target, 0 * target), pairs, scores > 2):
                metric.update(scores, target, exclude=exclude, side="head", **columns)
                columns["sample_id"] = columns["sample_id"] + 10_000
            metric.update(rank_scores(scores, target), side="tail")
            metric.update(
                Ranks(target + 1, target + 2, 20), side="tail", weight=columns["weight"], group=3
            )
            metric.update(Ranks.from_negatives(sampled[:, 0], sampled), side="tail")
            metric.update(RankTable.from_ranks(rank_scores(scores, target), side="head"))
            of_a_side.update(scores, target, side="head")
    # nothing waited, so that only compute can report what the look-ups did not contain
    with pytest.warns(RankMetricWarning, match=r"not contain the target of \d+ of 144 ranking"):
        assert metric.compute()["count"] == 3 * 6 * (4 + 4)


@pytest.mark.parametrize("make", [collection, MeanReciprocalRank])
def test_forward_gives_the_values_of_the_batch(device, make):
    metric, cpu = make().to(device), make()
    for seed in (1, 2):
        scores, target, columns = batch(seed)
        there = {name: column.to(device) for name, column in columns.items()}
        assert bits(metric(scores.to(device), target.to(device), **there)) == bits(
            cpu(scores, target, **columns)
        )
    assert bits(metric) == bits(cpu)


def test_rows_move_with_the_metric_and_stay_with_compute_on_cpu(device):
    moved_on, on_cpu = (
        filled(collection, "cpu", (1,)),
        RankCollection(NAMES, compute_on_cpu=True).to(device),
    )
    assert moved_on.to(device) is moved_on
    scores, target, columns = batch(2, device)
    for metric in (moved_on, on_cpu):
        metric.update(scores, target, **columns)
    assert {value.device.type for value in (moved_on.compute() | on_cpu.compute()).values()} == {
        standin.NAME
    }
    for member in moved_on.values(copy_state=False):
        member.to("cpu")  # as Lightning does with each metric that is logged
    assert len({id(member.rows) for member in moved_on.values(copy_state=False)}) == 1
    assert bits(moved_on) == bits(filled(collection, "cpu", (1, 2)))
    assert {block.device.type for block in next(iter(on_cpu.values(copy_state=False))).rows} == {
        "cpu"
    }


@pytest.mark.parametrize(
    ("name", "make", "error"),
    [
        ("target", lambda put: rank_scores(put(torch.zeros(2, 3)), put([0, 3])), IndexError),
        (
            "exclude",
            lambda put: rank_scores(
                put(torch.zeros(2, 3)), put([0, 1]), exclude=(put([0]), put([7]))
            ),
            IndexError,
        ),
        (
            "target",
            lambda put: rank_embeddings(
                put(torch.zeros(2, 3)),
                put(torch.zeros(4, 3)),
                put([0, 3]),
                exclude=put([False, False, False, True]),
            ),
            ValueError,
        ),
        (
            "target",
            lambda put: rank_embeddings(*[put(torch.zeros(2, 3))] * 2, put([0, 2])),
            IndexError,
        ),
        ("num_candidates", lambda put: Ranks(put([1]), None, put([2**62])), ValueError),
        ("ranks", lambda put: Ranks(put([0]), None, 5), ValueError),
    ],
)
def test_faults_of_values_are_reported_at_compute(device, name, make, error):
    metric = MeanReciprocalRank().to(device)
    metric.update(make(lambda values: torch.as_tensor(values).to(device)))
    with pytest.raises(error, match=f"{name}.*accelerator"):
        metric.compute()


def test_the_stand_in_records_waits(device):
    values = torch.arange(4, device=device)
    for wait in (
        values.cpu,
        values.tolist,
        lambda: bool(values.any()),
        lambda: values[values > 1],
        values.unique,
    ):
        with pytest.raises(RuntimeError, match="waits for the device"), standin.no_waiting():
            wait()
    with pytest.raises(TypeError):
        values.numpy()
    with pytest.raises(IndexError):
        values[torch.tensor([4], device=device)]
    before = standin.waits()
    values.sum().item()
    assert standin.waits() == before + 1


@pytest.mark.filterwarnings("ignore:relevant items of one query")
@cases(8, 250)
@given(data=st.data())
def test_several_answers_are_named_without_waiting_and_have_the_values_of_the_cpu(data, device):
    B, N = 5, 7
    scores = (
        torch.tensor(data.draw(st.lists(st.integers(0, 4), min_size=B * N, max_size=B * N)))
        .reshape(B, N)
        .float()
    )
    tasks = data.draw(st.sets(st.tuples(st.integers(0, B - 1), st.integers(0, N - 1)), min_size=1))
    pairs = data.draw(st.sets(st.tuples(st.integers(0, B - 1), st.integers(0, N - 1))))
    row, column = torch.tensor(sorted(tasks)).T
    kind = data.draw(st.sampled_from(["none", "mask", "index"]))
    problem = (
        kind,
        sorted(pairs - tasks if kind == "mask" else pairs),  # only a look-up may hold targets
        sorted(tasks),
        B,
        N,
    )
    out, there = as_exclude(*problem)[0], excluded(*problem, device)[0]
    named = {"query": torch.arange(B) + 3} if data.draw(st.booleans()) else {}
    ids = {"sample_id": torch.arange(len(row))} if data.draw(st.booleans()) else {}
    names = ["ap", "mrr", "recall_at_2", "z_ndcg"]
    here, other = RankCollection(names), RankCollection(names).to(device)
    here.update(scores, (row, column), exclude=out, **named, **ids)
    known = {key: value.to(device) for key, value in (named | ids).items()}
    target, on_device = (row.to(device), column.to(device)), scores.to(device)
    with standin.no_waiting():
        other.update(on_device, target, exclude=there, **known)
    assert bits(other) == bits(here)
    assert (other.table().rows == here.table().rows).all()


def test_exclude_that_holds_relevant_items_raises_at_compute(device):
    scores, target = torch.rand(3, 5).to(device), torch.tensor([0, 1, 2], device=device)
    seen = torch.eye(5, dtype=torch.bool, device=device)[[0, 4, 2]]
    for exclude in (seen, tuple(seen.nonzero().T)):
        collection = RankCollection(["mrr", "rr"]).to(device)
        with standin.no_waiting():
            collection.update(scores, target, exclude=exclude)
        with pytest.raises(ValueError, match=r"exclude must not contain relevant items.*2 of 3"):
            collection.compute()
        of_tasks = RankCollection(["mrr"]).to(device)
        of_tasks.update(scores, target, exclude=exclude)
        assert of_tasks.compute()["mrr"] > 0


def test_flat_lists_and_empty_queries_have_the_values_of_the_cpu(device):
    scores, lists = torch.rand(4, 5), [[0, 3], [], [2], []]
    mask = torch.zeros(4, 5, dtype=torch.bool)
    for row, columns in enumerate(lists):
        mask[row, columns] = True
    options = {"empty_queries": "zero", "sides": ("head", "both")}
    here, there = (RankCollection(["ap", "rr", "count"], **options) for _ in range(2))
    there = there.to(device)
    for collection, move in ((here, torch.Tensor.clone), (there, lambda x: x.to(device))):
        for target in (mask, mask.float()):
            known = {"query": torch.tensor([1, 2, 3, 4]), "weight": torch.tensor([1.0, 2, 3, 0])}
            known = {name: move(value) for name, value in known.items()}
            collection.update(move(scores), move(target), side="head", **known)
            collection.reset()
        collection.update(move(scores), lists, side="head")
        columns = (scores.ravel(), mask.ravel(), torch.arange(4).repeat_interleave(5))
        preds, target, indexes = map(move, columns)
        with standin.no_waiting():
            for part in (slice(0, 7), slice(7, 20)):
                collection.update(preds[part], target[part], indexes=indexes[part], side="tail")
    assert bits(there) == bits(here)
    assert (there.table().rows == here.table().rows).all()
