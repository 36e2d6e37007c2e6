"""Sizes beyond one matrix: 80M candidates in chunks, and the known answers of 20M triples; each in its own process.

python -m benchmarks.scale [--full] [--threads N] [--json PATH]

The peak memory is that of the whole process, Python, torch and the made-up data included.
"""

import multiprocessing
import resource
import sys
from collections.abc import Callable
from typing import Any

import torch
from benchmarks.timing import arguments, line, report

from torchrankmetrics import KnownTriples, RankAccumulator, rank_embeddings

GIB = 1 << 30


def main() -> None:
    given = arguments(__doc__.splitlines()[0])
    report(rows(given.full), given.json)


def rows(full: bool) -> list[dict[str, Any]]:
    cases: list[tuple[Callable[..., list[dict[str, Any]]], tuple[int, ...], int]] = [
        (chunks, (32, 80_000_000 if full else 2_000_000, 1_000_000 if full else 100_000), 4 * GIB),
        (embedding_memory, (64, 1_000_000 if full else 100_000, 200), 4 * GIB),
        (known, (20_000_000, 5_000_000, 822) if full else (200_000, 50_000, 100), 8 * GIB),
    ]
    result = []
    for run, sizes, most in cases:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            part, peak = pool.apply(with_peak_memory, (run, sizes, torch.get_num_threads()))
        assert peak < most, f"{part[0]['case']} took {peak / GIB:.2f} GiB, more than {most / GIB:.0f}"
        result += [{**row, "peak_gib": peak / GIB} for row in part]
    return result


def with_peak_memory(
    run: Callable[..., list[dict[str, Any]]], sizes: tuple[int, ...], threads: int
) -> tuple[list[dict[str, Any]], int]:
    """Run in this process, which is fresh, and say how much memory it had at most, in bytes."""
    torch.set_num_threads(threads)
    part = run(*sizes)
    unit = 1 if sys.platform == "darwin" else 1024
    return part, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def chunks(B: int, N: int, width: int) -> list[dict[str, Any]]:
    """Chunks are windows of one block of random numbers, so that making them costs nothing."""
    generator = torch.Generator().manual_seed(3)
    block = torch.randn(B, 2 * width, generator=generator)
    starts = torch.randint(0, width, (N // width,), generator=generator).tolist()
    target = torch.randint(0, N, (B,), generator=generator)
    column = torch.tensor([starts[i] for i in (target // width).tolist()]) + target % width
    true = block.gather(1, column[:, None])[:, 0]

    def windows() -> Any:
        return (block[:, start : start + width] for start in starts)

    def ours() -> Any:
        ranks = RankAccumulator(true, target, (B, N))
        for window in windows():
            ranks.update(window)
        return ranks.compute()

    above = sum((window > true[:, None]).sum(1) for window in windows())
    assert torch.equal(ours().optimistic, 1 + above), "chunks rank otherwise"
    case = f"chunks {B} x {N}"
    return [
        line(case, "one read", "floor", lambda: [window.sum() for window in windows()]),
        line(case, "RankAccumulator", "ours", ours),
    ]


def embedding_memory(B: int, N: int, d: int) -> list[dict[str, Any]]:
    """How much the peak of the process grows with rank_embeddings, once torch and Numba have set themselves up."""
    queries, candidates = torch.empty(B, d).normal_(), torch.empty(N, d).normal_()
    target = torch.arange(B)
    rank_embeddings(queries, candidates[:8192], target, arithmetic="product")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def ours() -> Any:
        return rank_embeddings(queries, candidates, target, arithmetic="product")

    row = line(f"memory of {B} x {N}, d = {d}", "rank_embeddings", "ours", ours)
    return [{**row, "extra_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}]


def known(number: int, entities: int, relations: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(4)
    triples = torch.stack(
        [
            (torch.rand(number, generator=generator) ** 2 * entities).long(),
            torch.randint(0, relations, (number,), generator=generator),
            (torch.rand(number, generator=generator) ** 2 * entities).long(),
        ],
        dim=1,
    )
    index = KnownTriples(triples, num_entities=entities)
    batch = triples[:256]
    rows_, tails = index.tails(batch[:, 0], batch[:, 1]).pairs()
    for i in (0, 100, 255):
        same = (triples[:, 0] == batch[i, 0]) & (triples[:, 1] == batch[i, 1])
        assert torch.equal(tails[rows_ == i], triples[same, 2].unique()), "known answers differ from a scan"
    key = triples[:, 0] * relations + triples[:, 1]
    return [
        line(f"known {number} triples", "two sorts of the keys", "floor", lambda: (key.sort(), key.sort()), least=2),
        line(f"known {number} triples", "KnownTriples", "ours", lambda: KnownTriples(triples), least=2),
        line(
            f"look-up in {number} triples",
            "256 queries, both sides",
            "ours",
            lambda: (index.tails(batch[:, 0], batch[:, 1]), index.heads(batch[:, 1], batch[:, 2])),
        ),
    ]


if __name__ == "__main__":
    main()
