"""Beyond one matrix: 80M candidates in chunks, 20M known triples, candidates over two processes.

python -m benchmarks.scale [--full] [--threads N] [--json PATH]

The peak memory is that of the whole process, Python, torch and the made-up data included.

With --full also sharded: 10M x 128 float32 (5 GB) in a mapped file, ranked by two gloo processes of
2 GiB each. The limit is RLIMIT_DATA: memory that a process allocates, without pages of the file.
Reported are the seconds of one batch, mapping and reading included, the peak of allocated memory
(RssAnon, every 10 ms) and of resident memory (VmHWM, pages of the file included). The ranks are
compared with one process without a limit. Not measured: any GPU, any network.
"""

import multiprocessing
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from benchmarks.timing import arguments, line, report
from torch import Tensor, distributed

from torchrankmetrics import KnownTriples, rank_embeddings
from torchrankmetrics.ranking import RankAccumulator

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
        assert peak < most, (
            f"{part[0]['case']} took {peak / GIB:.2f} GiB, more than {most / GIB:.0f}"
        )
        result += [{**row, "peak_gib": peak / GIB} for row in part]
    return result + sharded(full)


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
    """Growth of the process's peak by rank_embeddings, after the setup of torch and Numba."""
    queries, candidates = torch.empty(B, d).normal_(), torch.empty(N, d).normal_()
    target = torch.arange(B)
    rank_embeddings(queries, candidates[:8192], target)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def ours() -> Any:
        return rank_embeddings(queries, candidates, target)

    row = line(f"memory of {B} x {N}, d = {d}", "rank_embeddings", "ours", ours)
    return [
        {**row, "extra_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}
    ]


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
        assert torch.equal(tails[rows_ == i], triples[same, 2].unique()), (
            "known positives differ from a scan"
        )
    key = triples[:, 0] * relations + triples[:, 1]
    return [
        line(
            f"known {number} triples",
            "two sorts of the keys",
            "floor",
            lambda: (key.sort(), key.sort()),
            least=2,
        ),
        line(
            f"known {number} triples",
            "KnownTriples",
            "ours",
            lambda: KnownTriples(triples),
            least=2,
        ),
        line(
            f"look-up in {number} triples",
            "256 queries, both sides",
            "ours",
            lambda: (index.tails(batch[:, 0], batch[:, 1]), index.heads(batch[:, 1], batch[:, 2])),
        ),
    ]


LIMIT = 2 * GIB
CHUNK = 1 << 16


def sharded(full: bool, folder: Path | None = None) -> list[dict[str, Any]]:
    number, width, queries = (10_000_000, 128, 256) if full else (100_000, 32, 64)
    about = {"case": f"{queries} x {number}, d = {width}", "threads": torch.get_num_threads()}
    found = []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place, "candidates.bin")
        write(path, number, width)
        ranks = {}
        for size in (2, 1):
            context = multiprocessing.get_context("spawn")
            with context.Pool(size) as pool:
                tasks = [
                    (rank, size, path, number, width, queries, torch.get_num_threads())
                    for rank in range(size)
                ]
                parts = pool.starmap(ranked_by, tasks, chunksize=1)
            ranks[size] = parts[0][0]
            assert all(torch.equal(part[0], ranks[size]) for part in parts)
            seconds = [part[1] for part in parts]
            found.append(
                about
                | {
                    "way": f"{size} processes" if size > 1 else "1 process, no limit",
                    "role": "ours",
                }
                | dict.fromkeys(("best", "median", "low", "high"), 1e3 * max(seconds))
                | {
                    "runs": 1,
                    "cpu_seconds": sum(part[2] for part in parts),
                    "load": os.getloadavg()[0],
                }
                | {"limit_gib": LIMIT / GIB if size > 1 else None}
                | {
                    "allocated_gib": max(part[3] for part in parts),
                    "resident_gib": max(part[4] for part in parts),
                }
            )
        assert torch.equal(ranks[1], ranks[2]), "two processes rank otherwise than one"
    return found


def write(path: Path, number: int, width: int) -> None:
    """Write candidates in chunks: the same normal numbers, in other places, at another scale."""
    block = torch.randn(CHUNK, width, generator=torch.Generator().manual_seed(0))
    with path.open("wb") as file:
        for chunk, left in enumerate(range(0, number, CHUNK)):
            numbers = block[: number - left].roll(chunk, 1) * (1 + chunk / 1024)
            file.write(numbers.numpy().tobytes())


def ranked_by(
    rank: int, size: int, path: Path, number: int, width: int, queries: int, threads: int
) -> tuple[Tensor, float, float, float, float]:
    """Ranks of one process, wall-clock and CPU seconds, peaks in GiB: allocated, resident."""
    if size > 1:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    torch.set_num_threads(threads)
    store = distributed.FileStore(str(path.with_suffix(f".{size}")), size)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
    group = distributed.group.WORLD if size > 1 else None
    warm = torch.randn(4, width)
    rank_embeddings(warm, warm, torch.arange(4))  # what is compiled once
    generator = torch.Generator().manual_seed(1)
    target = torch.randint(0, number, (queries,), generator=generator)
    with watched() as peak:
        begin, before = time.perf_counter(), time.process_time()
        candidates = torch.from_file(str(path), shared=True, size=number * width).view(
            number, width
        )
        asked = candidates[target] + 0.5 * torch.randn(queries, width, generator=generator)
        mine = slice(rank * number // size, (rank + 1) * number // size)
        ranks = rank_embeddings(asked, candidates[mine], target, process_group=group)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - before
    distributed.barrier()
    distributed.destroy_process_group()
    return ranks.columns, seconds, cpu, peak[0] / GIB, status("VmHWM") / GIB


@contextmanager
def watched() -> Iterator[list[int]]:
    """Peak of what is allocated, in bytes, looked at every 10 ms."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while True:
            peak[0] = max(peak[0], status("RssAnon"))
            if done.wait(0.01):
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def status(name: str) -> int:
    """Bytes that Linux tells of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
