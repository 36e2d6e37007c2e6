"""Known answers from a file: opened where they were built, and built with less memory than they take.

python -m benchmarks.known_files [--full] [--threads N] [--json PATH]

Triples as in ``benchmarks.scale``, skewed and random; each case in a process of its own. "limit" is what the system
lets the process have beside its mapped files (RLIMIT_DATA), Python and torch included; "peak" is its largest resident
size, of which mapped pages are part. ``--folder`` says where the files stand while it runs: 2.5 GB with ``--full``.
"""

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from benchmarks.timing import machine, measure

from torchrankmetrics import KnownTriples

GIB = 1 << 30
CHUNK = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="20M triples; without: 1M")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="of the files; without: that of temporary files")
    parser.add_argument("--json", type=Path, help="write the results there")
    given = parser.parse_args()
    number = 20_000_000 if given.full else 1_000_000
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder)
        rows = [
            run_alone(build_in_memory, given.threads, None, number, path / "memory.bin"),
            run_alone(build_in_runs, given.threads, GIB, number, path / "runs.bin"),
        ]
        assert same(path / "memory.bin", path / "runs.bin"), "the file built in runs is another"
        rows += [run_alone(open_file, given.threads, None, number, path / "runs.bin")]
        rows += [run_alone(verify_file, given.threads, None, number, path / "runs.bin")]
    in_memory, _, opened, _ = rows
    about = machine() | {"threads": given.threads, "triples": number, "load": round(os.getloadavg()[0], 1)}
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print(table(rows))
    print(
        f"\nopening instead of building: {in_memory['cpu_ms'] / opened['cpu_ms']:.0f} times less time of the processor"
    )
    if given.json:
        given.json.write_text(json.dumps({"machine": about, "rows": rows}, indent=1) + "\n")


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| case | time (ms) | processor (ms) | limit (GiB) | peak (GiB) | of it private (GiB) |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        limit = "" if row["limit_gib"] is None else f"{row['limit_gib']:.2f}"
        numbers = (
            f"{row['ms']:,.2f} | {row['cpu_ms']:,.2f} | {limit} | {row['peak_gib']:.2f} | {row['private_gib']:.2f}"
        )
        lines.append(f"| {row['case']} | {numbers} |")
    return "\n".join(lines)


def run_alone(case: Callable[..., dict[str, Any]], threads: int, limit: int | None, *given: Any) -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (case, threads, limit, *given))


def _measured(case: Callable[..., dict[str, Any]], threads: int, limit: int | None, *given: Any) -> dict[str, Any]:
    torch.set_num_threads(threads)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    row = case(*given)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    row |= {"limit_gib": limit and limit / GIB, "peak_gib": peak / GIB, "private_gib": private() / GIB}
    return row


def private() -> float:
    """Bytes that this process now has for itself, as Linux counts them."""
    rollup = Path("/proc/self/smaps_rollup")
    if not rollup.exists():
        return float("nan")
    lines = [line.split() for line in rollup.read_text().splitlines() if line.startswith("Private_Dirty")]
    return 1024.0 * sum(int(line[1]) for line in lines)


def chunks(number: int) -> Iterator[torch.Tensor]:
    """The same triples whoever asks, a million at once."""
    entities, relations = number // 4, 822
    for first in range(0, number, CHUNK):
        generator = torch.Generator().manual_seed(first)
        size = min(CHUNK, number - first)
        ends = [(torch.rand(size, generator=generator) ** 2 * entities).long() for _ in range(2)]
        yield torch.stack([ends[0], torch.randint(0, relations, (size,), generator=generator), ends[1]], dim=1)


def timed(case: str, run: Callable[[], Any]) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return {"case": case, "ms": 1e3 * (time.perf_counter() - wall), "cpu_ms": 1e3 * (time.process_time() - cpu)}


def build_in_memory(number: int, path: Path) -> dict[str, Any]:
    triples = torch.cat(list(chunks(number)))
    found = []
    row = timed(f"KnownTriples of {number:,} triples", lambda: found.append(KnownTriples(triples)))
    found[0].save(path)
    return row


def build_in_runs(number: int, path: Path) -> dict[str, Any]:
    """What makes the triples is not our cost, but it is part of the time."""
    made = timed("", lambda: [None for _ in chunks(number)])
    row = timed(
        "KnownTriples.build, in runs of 256 MiB",
        lambda: KnownTriples.build(path, chunks(number), max_bytes=GIB // 4, progress=False),
    )
    return row | {name: row[name] - made[name] for name in ("ms", "cpu_ms")}


def open_file(number: int, path: Path) -> dict[str, Any]:
    """Median of fifty; then look-ups over the whole file, so that the peak has them."""
    KnownTriples.open(path)
    wall = measure(lambda: KnownTriples.open(path), seconds=0.2)["median"]
    before = time.process_time()
    for _ in range(200):
        known = KnownTriples.open(path)
    cpu = 1e3 * (time.process_time() - before) / 200
    assert wall < 10, f"opening took {wall} ms"
    for triples in chunks(number):
        known.num_candidates(triples[::64], "tail"), known.num_candidates(triples[::64], "head")
    return {"case": "KnownTriples.open", "ms": wall, "cpu_ms": cpu}


def verify_file(number: int, path: Path) -> dict[str, Any]:
    known = KnownTriples.open(path)
    return timed("verify", known.verify)


def same(one: Path, other: Path) -> bool:
    with one.open("rb") as a, other.open("rb") as b:
        while part := a.read(CHUNK):
            if part != b.read(len(part)):
                return False
        return not b.read(1)


if __name__ == "__main__":
    main()
