"""Candidates in slices on several processes: the ranks of one process, bit for bit.

No process is left waiting. Also the cases of a second device.
"""

import os
import re
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist

import reference_ranks as reference
from default_device import LibraryOn
from ranking_problems import KINDS, as_exclude, as_target, flagged_lines
from scripts import forked
from test_embedding_ranks import (
    BACKENDS,
    DTYPES,
    KINDS_OF_NUMBERS,
    drawn_sizes,
    embeddings,
    tuned,
)
from torchrankmetrics import (
    KnownTriples,
    RankCollection,
    Ranks,
    RankTable,
    rank_embeddings,
    rank_scores,
    rank_triples,
)
from torchrankmetrics.kg import EmbeddingScorer
from torchrankmetrics.ranking import Candidates, RankAccumulator
from worker_pool import WorkerPool

EXPLORE = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
SIZES, CASES = ([1, 2, 3, 4], 200) if EXPLORE else ([2, 4], 10)


class Drawn:
    """Choices that every process makes alike."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def integer(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def one_of(self, choices: Any) -> Any:
        return choices[self.integer(0, len(choices) - 1)]

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=self.generator)

    def slices(self, number: int) -> list[slice]:
        """Slices that cover so many candidates, for each process one: none, few or all of them."""
        size = dist.get_world_size()
        cuts = sorted(self.one_of([0, number, self.integer(0, number)]) for _ in range(size - 1))
        found = [
            slice(left, right) for left, right in zip([0, *cuts], [*cuts, number], strict=True)
        ]
        return [found[i] for i in torch.randperm(size, generator=self.generator).tolist()]

    def place(self, number: int) -> tuple[slice, dict[str, Any]]:
        """The slice of this process, and the keywords that tell of it."""
        slices = self.slices(number)
        options: dict[str, Any] = {"process_group": dist.group.WORLD}
        if self.integer(0, 1):
            options["num_candidates"] = number
        mine = dist.get_rank()
        if self.integer(0, 1) or sum(part.stop > part.start for part in slices) == 0:
            return slices[mine], options | {"offset": slices[mine].start}
        slices.sort(key=lambda part: (part.start, part.stop))
        return slices[mine], options

    def tasks(self, B: int, N: int) -> tuple[str, list[tuple[int, int]]]:
        if not B or self.integer(0, 1):
            return "one", [(i, self.integer(0, N - 1)) for i in range(B)]
        return "pairs", [(self.integer(0, B - 1), self.integer(0, N - 1)) for _ in range(3 * B)]

    def cells(self, B: int, N: int) -> list[tuple[int, ...]]:
        return [(self.integer(0, B - 1), self.integer(0, N - 1)) for _ in range(2 * N)] if B else []


def fields_of(ranks: Ranks) -> tuple[Any, ...]:
    flags = None if ranks.flags is None else ranks.flags.tolist()
    rows = None if ranks.rows is None else (ranks.rows[0].tolist(), ranks.rows[1])
    return ranks.columns.tolist(), flags, rows


def job_embeddings(first: int, cases: int) -> None:
    for seed in range(first, first + cases):
        draw = Drawn(seed)
        B, N, d = draw.integer(0, 4), draw.integer(1, 24), draw.one_of([1, 2, 9, 70])
        dtype, similarity = draw.one_of(DTYPES), draw.one_of(["dot", "cosine", "l2", "l1"])
        kind = draw.one_of(KINDS_OF_NUMBERS)
        queries, candidates = embeddings(kind, draw.generator, B, N, d, dtype)
        bias = None
        if similarity != "cosine" and draw.integer(0, 1):
            bias = torch.randn(N, generator=draw.generator)
            if draw.integer(0, 2) == 0:
                bias[::3] = draw.one_of([torch.inf, -torch.inf, torch.nan])
            bias = bias.to(dtype)
        form, tasks = draw.tasks(B, N)
        exclude, gone = as_exclude(draw.one_of(KINDS), draw.cells(B, N), tasks, B, N)
        mine, options = draw.place(N)
        given = {"similarity": similarity, "exclude": exclude, "backend": draw.one_of(BACKENDS)}
        target = as_target(form, tasks)
        with tuned(**drawn_sizes(draw.integer(0, 60))):
            chunk_size = draw.one_of([None, 1, 5])
            alone = rank_embeddings(
                queries, candidates, target, bias=bias, chunk_size=chunk_size, **given
            )
            if dist.get_rank() == 0:
                scores = reference.score_matrix(queries, candidates, bias, similarity)
                assert flagged_lines(alone) == reference.ranks(scores, tasks, gone), seed
            stored = Candidates(candidates[mine], None if bias is None else bias[mine])
            if chunk_size is not None:  # processes may have chunks of any size
                chunk_size += dist.get_rank()
            ranks = rank_embeddings(
                queries, stored, target, chunk_size=chunk_size, **given, **options
            )
        assert fields_of(ranks) == fields_of(alone), seed


def job_chunks(first: int, cases: int) -> None:
    for seed in range(first, first + cases):
        draw = Drawn(seed)
        B, N = draw.integer(0, 4), draw.integer(1, 12)
        dtype = draw.one_of([*DTYPES, torch.int64, torch.uint16, torch.float8_e5m2])
        wide = draw.integers(7, B, N).float()
        if dtype.is_floating_point:
            wide[draw.integers(6, B, N) == 0] = draw.one_of([torch.nan, torch.inf, -torch.inf])
        scores = wide.to(dtype)
        form, tasks = draw.tasks(B, N)
        target = as_target(form, tasks)
        exclude, gone = as_exclude(draw.one_of(KINDS), draw.cells(B, N), tasks, B, N)
        mine, options = draw.place(N)
        alone = rank_scores(scores, target, exclude=exclude)
        assert flagged_lines(alone) == reference.ranks(wide.tolist(), tasks, gone), seed
        rows, columns = (
            torch.tensor([task[i] for task in tasks], dtype=torch.int64) for i in range(2)
        )
        stored = (columns >= mine.start) & (columns < mine.stop)
        true = torch.where(stored, wide[rows, columns], 3.0).to(dtype)  # of others: anything
        accumulator = RankAccumulator(
            true, target, (B, mine.stop - mine.start), exclude=exclude, **options
        )
        for chunk in scores[:, mine].split(draw.integer(1, 5), dim=1):
            accumulator.update(chunk)
        assert fields_of(accumulator.compute()) == fields_of(alone), seed
        assert fields_of(accumulator.compute()) == fields_of(alone), seed  # without communication


ENTITIES, RELATIONS, WIDTH = 23, 3, 6


def model() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(5)
    entities = torch.randn(ENTITIES, WIDTH, generator=generator)
    relations = torch.randn(RELATIONS, WIDTH, generator=generator)
    bias = torch.randn(ENTITIES, generator=generator)
    triples = torch.stack(
        [torch.randint(0, n, (61,), generator=generator) for n in (ENTITIES, RELATIONS, ENTITIES)],
        1,
    )
    return entities, relations, bias, triples


def job_triples(seed: int) -> None:
    entities, relations, bias, triples = model()
    known = KnownTriples(triples, num_entities=ENTITIES)
    whole = slice(0, ENTITIES)

    def scorers(kind: str, mine: slice) -> list[Any]:
        if kind == "matrix":  # of integers: the product of a slice is that of the whole
            rounded = entities.round()
            return [lambda h, r: (rounded[h] + r[:, None]) @ rounded[mine].T, None]
        made = Candidates(entities[mine], bias[mine].round())
        return [
            EmbeddingScorer(lambda h, r: entities[h] + relations[r], made, similarity=kind),
            EmbeddingScorer(lambda r, t: entities[t] - relations[r], made, similarity=kind),
        ]

    for number, kind in enumerate(["l2", "l1", "matrix"]):
        draw = Drawn(seed + number)
        mine, options = draw.place(ENTITIES)
        given = {"batch_size": draw.one_of([None, 7]), "progress": False}
        if number == 0:
            given["candidates"] = triples[:, [0, 2]].unique()
        alone = rank_triples(*scorers(kind, whole), triples, known, **given)
        table = rank_triples(*scorers(kind, mine), triples, known, **given, **options)
        assert torch.equal(table.rows, alone.rows), (kind, seed)


def job_invariants(cases: int) -> None:
    first, few = 10_000 * dist.get_world_size(), max(1, cases // 10)
    for job in (job_embeddings, job_chunks):
        job(first, cases)
        with LibraryOn("meta"), torch.inference_mode():
            job(first + cases, few)
    for seed in range(first, first + few):
        job_triples(seed)


@pytest.mark.parametrize("size", SIZES)
def test_ranks_are_those_of_one_process(pool: WorkerPool, size: int) -> None:
    pool.run(job_invariants, [(CASES,)] * size)


def job_two_by_two() -> list[tuple[int, dict[str, float]]]:
    """Two groups share the candidates, each ranks half of the triples; all values, in two ways."""
    entities, relations, _, triples = model()
    known = KnownTriples(triples, num_entities=ENTITIES)
    me = dist.get_rank()
    candidate_groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    data_groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    place, data = me // 2, torch.arange(me // 2, len(triples), 2)
    mine = [slice(0, 5), slice(5, ENTITIES)][me % 2]
    score = EmbeddingScorer(lambda h, r: entities[h] * relations[r], entities[mine])
    group = candidate_groups[place]
    table = rank_triples(score, None, triples[data], known, progress=False, process_group=group)
    assert len(table) == len(data)
    found = []
    # once for each half; or on all processes, where the same id counts once
    for group, ids in ((data_groups[me % 2], None), (None, data)):
        named = RankTable.from_ranks(table.ranks, side="tail", group=table.group, sample_id=ids)
        metrics = RankCollection(["mrr", "adjusted_mrr", "z_mr", "count"], process_group=group)
        metrics.update(named)
        found.append({key: value.item() for key, value in metrics.compute().items()})
    return found


def test_candidates_and_data_are_shared_at_once(pool: WorkerPool) -> None:
    entities, relations, _, triples = model()
    known = KnownTriples(triples, num_entities=ENTITIES)
    score = EmbeddingScorer(lambda h, r: entities[h] * relations[r], entities)
    metrics = RankCollection(["mrr", "adjusted_mrr", "z_mr", "count"])
    metrics.update(rank_triples(score, None, triples, known, progress=False))
    expected = {key: value.item() for key, value in metrics.compute().items()}
    assert pool.run(job_two_by_two, [()] * 4) == [[expected, expected]] * 4


def cases_of_faults() -> dict[str, tuple[Any, Any]]:
    """What goes wrong, as a call for each process of three; and the error on all."""
    queries, candidates, target = torch.ones(2, 3), torch.ones(4, 3), torch.tensor([0, 11])
    group = dist.group.WORLD
    me = dist.get_rank()

    def ranked(**changed: Any) -> Any:
        given = {
            "queries": queries,
            "candidates": candidates,
            "target": target,
            "process_group": group,
        } | changed
        return lambda: rank_embeddings(**given)

    def on(process: int, **changed: Any) -> Any:
        return ranked(**changed) if me == process else ranked()

    def fails() -> Any:
        raise KeyError("no such entity")

    def scored(score: Any) -> Any:
        return lambda: rank_triples(
            score, None, torch.tensor([[0, 0, 11]]), None, process_group=group, progress=False
        )

    def chunked(columns: int) -> Any:
        def call() -> Ranks:
            accumulator = RankAccumulator(torch.ones(2), target, (2, 4), process_group=group)
            accumulator.update(torch.ones(2, columns))
            return accumulator.compute()

        return call

    return {
        "overlap": (
            ranked(offset=[0, 3, 8][me]),
            "process 0 has [0, 4), process 1 has [3, 7), process 2 has [8, 12)",
        ),
        "gap": (
            ranked(offset=[0, 5, 9][me]),
            "cover the candidates once, but process 0 has [0, 4), process 1 has [5",
        ),
        "offset of some": (
            on(2, offset=8),
            "offset must be given on all processes of process_group or on none",
        ),
        "number": (on(1, num_candidates=13), "num_candidates must be the total of the shards"),
        "target": (ranked(target=torch.tensor([0, 12])), "target must lie in [0, 12)"),
        "target on one": (on(1, target=torch.tensor([0, 12])), "target must lie in [0, 12)"),
        "other target": (
            on(1, target=torch.tensor([0, 10])),
            "target must be the same on all processes",
        ),
        "widths": (
            on(2, candidates=candidates[:, :2], queries=queries[:, :2]),
            "candidates must be the same on all processes of process_group, but process 0 has "
            "(torch.float32",
        ),
        "scorer": (
            scored((lambda h, r: fails()) if me == 1 else (lambda h, r: torch.ones(1, 4))),
            "no such entity",
        ),
        "bias": (on(1, bias=torch.ones(4)), "bias must be the same on all processes"),
        "negated queries": (
            ranked(
                queries=queries.double() * (-1 if me == 1 else 1), candidates=candidates.double()
            ),
            "queries must be the same on all processes",
        ),
        "as many exclusions": (
            ranked(exclude=([0], [[1, 5, 9][me]])),
            "exclude must be the same on all processes",
        ),
        "similarity": (on(1, similarity="l1"), "similarity must be the same on all processes"),
        "scores": (
            scored(lambda h, r: torch.ones(1 + (me == 2), 4)),
            "score_tails must return scores (1, N)",
        ),
        "columns": (chunked(4 - (me == 1)), "compute needs all 4 columns; update has been given 3"),
    }


def job_faults() -> dict[str, tuple[str, str, str]]:
    found = {}
    for name, (call, message) in cases_of_faults().items():
        found[name] = ("no error", "", message)
        try:
            call()
        except Exception as error:
            found[name] = (type(error).__name__, str(error), message)
        ranks = rank_embeddings(
            torch.ones(1, 2), torch.eye(2), torch.tensor([5]), process_group=dist.group.WORLD
        )
        assert ranks.columns.tolist() == [[1], [6], [6]]  # everybody goes on
    return found


def test_a_fault_on_one_process_is_an_error_on_all(pool: WorkerPool) -> None:
    found = pool.run(job_faults, [()] * 3)
    for name, (_, _, message) in found[0].items():
        kinds = {process[name][0] for process in found}
        assert all(message in process[name][1] for process in found), name
        assert kinds <= {"ValueError", "TypeError", "IndexError"} or kinds == {
            "KeyError",
            "RuntimeError",
        }, name
    assert [process["target on one"][1].startswith("process 1") for process in found] == [
        True,
        False,
        True,
    ]
    assert [process["scorer"][0] for process in found] == [
        "RuntimeError",
        "KeyError",
        "RuntimeError",
    ]


def job_dies(me: int, when: str) -> tuple[str, float]:
    accumulator = RankAccumulator(
        torch.ones(1), torch.tensor([3]), (1, 2), process_group=dist.group.WORLD
    )
    store = dist.distributed_c10d._get_default_store()
    if me == 1:
        if when == "is silent":
            store.wait(["told"], timedelta(seconds=60))
        os._exit(1)
    # from here on: it may start slowly
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1), dist.group.WORLD)
    accumulator.update(torch.ones(1, 2))
    begin, message = time.monotonic(), ""
    try:
        accumulator.compute()
    except RuntimeError as error:
        message = str(error)
    seconds = time.monotonic() - begin
    store.set("told", "")
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return message, seconds


@pytest.mark.parametrize("when", ["dies", "is silent"])
def test_a_process_that_dies_or_is_silent_is_an_error_within_the_timeout(when: str) -> None:
    pool = WorkerPool(2)
    try:
        message, seconds = pool.run(job_dies, [(0, when), (1, when)], dies=1)[0]
    finally:
        pool.close()
    assert message
    assert when == "dies" or re.search("(?i)timed? ?out", message)
    assert seconds < 30  # that of the pool is 60


@pytest.mark.slow
def test_every_case_holds_on_a_second_device() -> None:
    # in a process of its own: hosts would pick a registered device up elsewhere
    cases = Path(__file__).with_name("second_device_cases.py")
    result = forked(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases), cwd=cases.parents[2]
    )
    assert result.returncode == 0, result.stdout[-6000:]
    if not re.search(r"\d+ passed", result.stdout):
        pytest.skip(result.stdout[-500:])  # the reason
