"""Candidates in slices: 10M x 128 float32 (5 GB) in a file that is mapped, ranked by two processes of 2 GiB each.

python -m benchmarks.candidate_parallel [--full] [--threads N] [--json PATH] [--folder FOLDER]

FOLDER takes the file, and is left without it; so many threads in each process, on one machine, over gloo. The limit is
RLIMIT_DATA: what a process allocates, but no pages of the file, which the system keeps as long as it likes; it ends a
process that goes beyond. Told are the seconds of one batch, mapping and reading the file included, the peak of what was
allocated (RssAnon, looked at every 10 ms) and that of all that was resident, pages of the file included (VmHWM). The
queries are noisy copies of their answers; the ranks are compared with those of one process, which has no limit and a
file that has been read before: its seconds are no baseline. Not measured: any GPU, any network.
"""

import argparse
import multiprocessing
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from benchmarks.timing import report
from torch import Tensor, distributed

from torchrankmetrics import rank_embeddings

GIB = 1 << 30
LIMIT = 2 * GIB
CHUNK = 1 << 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100,000 candidates (the default)")
    parser.add_argument("--full", action="store_true", help="10M candidates: minutes, and 5 GB of the disk")
    parser.add_argument("--threads", type=int, default=1, help="in each process")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument(
        "--folder", type=Path, help="for the file of the candidates; default: where temporary files are"
    )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    report(rows(given.full, given.folder), given.json)


def rows(full: bool, folder: Path | None = None) -> list[dict[str, Any]]:
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
                tasks = [(rank, size, path, number, width, queries, torch.get_num_threads()) for rank in range(size)]
                parts = pool.starmap(process, tasks, chunksize=1)
            ranks[size] = parts[0][0]
            assert all(torch.equal(part[0], ranks[size]) for part in parts)
            seconds = [part[1] for part in parts]
            found.append(
                about
                | {"way": f"{size} processes" if size > 1 else "1 process, no limit", "role": "ours"}
                | dict.fromkeys(("best", "median", "low", "high"), 1e3 * max(seconds))
                | {"runs": 1, "cpu_seconds": sum(part[2] for part in parts)}
                | {"limit_gib": LIMIT / GIB if size > 1 else None}
                | {"allocated_gib": max(part[3] for part in parts), "resident_gib": max(part[4] for part in parts)}
            )
        assert torch.equal(ranks[1], ranks[2]), "two processes rank otherwise than one"
    return found


def write(path: Path, number: int, width: int) -> None:
    """Write candidates, normal numbers, chunk by chunk."""
    generator = torch.Generator().manual_seed(0)
    with path.open("wb") as file:
        for left in range(0, number, CHUNK):
            file.write(torch.randn(min(CHUNK, number - left), width, generator=generator).numpy().tobytes())


def process(
    rank: int, size: int, path: Path, number: int, width: int, queries: int, threads: int
) -> tuple[Tensor, float, float, float, float]:
    """Rank on one process; ranks, seconds of the wall and of the processor, peaks in GiB: allocated, resident."""
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
        candidates = torch.from_file(str(path), shared=True, size=number * width).view(number, width)
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
