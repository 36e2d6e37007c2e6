"""Ten query metrics compared with ranx (Numba), pytrec_eval and torchmetrics: time and memory.

python -m benchmarks.retrieval [--full] [--threads N] [--json PATH]  (10 minutes with --full)

10,000 queries x 1,000 candidates (a tenth of the queries without --full), scores without ties, 1 to
20 relevant items each. Every method has its own process and stores the scores in its input format;
the methods take turns. Ours starts from the score matrix. For the others the construction of their
input (dicts, flat tensors) is not timed; ranx is timed twice: from the score matrix (with sorting
and copying), and on sorted arrays. held_mib is the memory of the input, extra_mib the peak memory
beyond it. All values are compared first. Packages that are not installed are skipped: pip install
ranx pytrec_eval-terrier.
"""

import importlib.metadata
import importlib.util
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.timing import _lines, arguments, machine, report
from torch import Tensor

NAMES = (
    *("recall_at_10", "recall_at_100", "precision_at_10", "precision_at_100", "success_at_10"),
    *("rr", "ap", "ndcg", "ndcg_at_10", "r_precision"),
)
Way = Callable[[Tensor, Tensor], Callable[[], dict[str, float]]]
ROUNDS, ENOUGH = 5, 60  # seconds: what has taken them is not run again


def main() -> None:
    given = arguments(__doc__.splitlines()[0])
    report(rows(given.full), given.json)


def problem(queries: int, candidates: int) -> tuple[Tensor, Tensor]:
    """Scores float32 (Q, N), each row a permutation of the same values; and which are relevant."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(queries, candidates, generator=generator).argsort(1).float() / candidates
    answers = torch.rand(queries, candidates, generator=generator).argsort(1)
    relevant = answers < torch.randint(1, 21, (queries, 1), generator=generator)
    return scores, relevant


def ours(scores: Tensor, relevant: Tensor) -> Callable[[], dict[str, float]]:
    from torchrankmetrics import RankCollection

    def run() -> dict[str, float]:
        collection = RankCollection(NAMES)
        collection.update(scores, relevant)
        return {name: float(value) for name, value in collection.compute().items()}

    return run


def torchmetrics(scores: Tensor, relevant: Tensor) -> Callable[[], dict[str, float]]:
    import torchmetrics.retrieval as peer
    from torchmetrics import MetricCollection

    indexes = torch.arange(len(scores))[:, None].expand_as(scores).flatten()
    preds, target = scores.flatten() + 0.5, relevant.flatten()  # above zero: see its MRR

    def run() -> dict[str, float]:
        metrics = (
            *(
                peer.RetrievalRecall(top_k=10),
                peer.RetrievalRecall(top_k=100),
                peer.RetrievalPrecision(top_k=10),
            ),
            *(
                peer.RetrievalPrecision(top_k=100),
                peer.RetrievalHitRate(top_k=10),
                peer.RetrievalMRR(),
            ),
            *(
                peer.RetrievalMAP(),
                peer.RetrievalNormalizedDCG(),
                peer.RetrievalNormalizedDCG(top_k=10),
            ),
            peer.RetrievalRPrecision(),
        )
        collection = MetricCollection(dict(zip(NAMES, metrics, strict=True)))
        collection.update(preds, target, indexes=indexes)
        return {name: float(value) for name, value in collection.compute().items()}

    return run


def pytrec_eval(scores: Tensor, relevant: Tensor) -> Callable[[], dict[str, float]]:
    import pytrec_eval as peer

    names = (
        "recall_10",
        "recall_100",
        "P_10",
        "P_100",
        "success_10",
        "recip_rank",
        "map",
        "ndcg",
        "ndcg_cut_10",
    )
    asked = {
        "recall.10,100",
        "P.10,100",
        "success.10",
        "recip_rank",
        "map",
        "ndcg",
        "ndcg_cut.10",
        "Rprec",
    }
    documents = [str(j) for j in range(scores.shape[1])]
    run_ = {str(i): dict(zip(documents, row.tolist(), strict=True)) for i, row in enumerate(scores)}
    qrels = {
        str(i): {documents[j]: 1 for j in row.nonzero()[:, 0].tolist()}
        for i, row in enumerate(relevant)
    }

    def run() -> dict[str, float]:
        values = peer.RelevanceEvaluator(qrels, asked).evaluate(run_)
        means = (
            sum(value[name] for value in values.values()) / len(values)
            for name in (*names, "Rprec")
        )
        return dict(zip(NAMES, means, strict=True))

    return run


def ranx_in_order(scores: Tensor, relevant: Tensor) -> Callable[[], dict[str, float]]:
    qrels, lists = _qrels_of_ranx(relevant), _lists_of_ranx(scores)
    return lambda: _ranx(qrels, lists)


def ranx_and_sort(scores: Tensor, relevant: Tensor) -> Callable[[], dict[str, float]]:
    return lambda: _ranx(_qrels_of_ranx(relevant), _lists_of_ranx(scores))


def _lists_of_ranx(scores: Tensor) -> np.ndarray[Any, Any]:
    order = scores.argsort(1, descending=True)
    return np.stack([order.numpy(), scores.gather(1, order).numpy()], axis=2, dtype=np.float64)


def _qrels_of_ranx(relevant: Tensor) -> Any:
    from numba.typed import List

    columns = [row.nonzero()[0] for row in relevant.numpy()]
    return List(
        [np.stack([column, np.ones(len(column))], 1, dtype=np.float64) for column in columns]
    )


def _ranx(qrels: Any, lists: np.ndarray[Any, Any]) -> dict[str, float]:
    import numba
    from ranx import evaluate

    names = ["recall@10", "recall@100", "precision@10", "precision@100", "hit_rate@10"]
    names += ["mrr", "map", "ndcg", "ndcg@10", "r-precision"]
    values = evaluate(
        qrels, lists, names, save_results_in_run=False, threads=numba.get_num_threads()
    )
    return {ours: float(values[theirs]) for ours, theirs in zip(NAMES, names, strict=True)}


WAYS: tuple[tuple[str, str, str, Way], ...] = (
    ("RankCollection", "ours", "torch", ours),
    ("ranx, sorting counted", "peer", "ranx", ranx_and_sort),
    ("ranx, sorted before", "peer", "ranx", ranx_in_order),
    ("pytrec_eval, dicts ready", "peer", "pytrec_eval", pytrec_eval),
    ("torchmetrics, flat ready", "peer", "torchmetrics", torchmetrics),
)
DISTRIBUTIONS = {"ranx": "ranx", "pytrec_eval": "pytrec-eval-terrier"}


def rows(full: bool) -> list[dict[str, Any]]:
    Q, N = (10_000, 1000) if full else (1000, 1000)
    ways = [way for way in WAYS if importlib.util.find_spec(way[2])]
    context = multiprocessing.get_context("spawn")
    seats = []
    for name, role, module, way in ways:
        here, there = context.Pipe()
        process = context.Process(
            target=serve, args=(there, way, Q, N, torch.get_num_threads()), daemon=True
        )
        process.start()
        seats.append((name, role, module, here))
    # once without the clock: what is compiled or cached is ready
    first = [seat[3].recv() for seat in seats]
    for (name, *_), (values, _) in zip(seats, first, strict=True):
        for key, value in values.items():
            near = 1e-5 if name.startswith("torchmetrics") else 1e-12  # single precision there
            assert abs(value - first[0][0][key]) < near, (
                f"{name}: {key} is {value}, ours {first[0][0][key]}"
            )
    times: list[list[float]] = [[] for _ in seats]
    extra = [0.0 for _ in seats]
    for _ in range(ROUNDS):
        for i, seat in enumerate(seats):
            if sum(times[i]) > 1e3 * ENOUGH:
                continue
            seat[3].send("run")
            took, more = seat[3].recv()
            times[i].append(1e3 * took)
            extra[i] = max(extra[i], more)
    for seat in seats:
        seat[3].send(None)
    case = f"10 metrics of {Q:,} queries x {N:,}"
    lines = _lines(case, tuple((name, role, None) for name, role, *_ in seats), times)
    versions = [_version(module) for _, _, module, _ in seats]
    return [
        {**line, "held_mib": held, "extra_mib": more, **({"version": version} if version else {})}
        for line, (_, held), more, version in zip(lines, first, extra, versions, strict=True)
    ]


def _version(module: str) -> str:
    known = machine()  # stands above the table
    return "" if module in known else importlib.metadata.version(DISTRIBUTIONS[module])


def serve(pipe: Connection, way: Way, Q: int, N: int, threads: int) -> None:
    """In a process of its own: make the input, then run when told to."""
    torch.set_num_threads(threads)
    if importlib.util.find_spec("numba"):
        import numba

        numba.set_num_threads(threads)
    run = way(*problem(16, N))
    run()  # what is imported and compiled is no part of the memory
    before = memory("VmRSS")
    run = way(*problem(Q, N))
    held = memory("VmRSS") - before
    pipe.send((run(), held))
    while pipe.recv():
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        before, start = memory("VmRSS"), time.perf_counter()
        run()
        took = time.perf_counter() - start
        pipe.send((took, memory("VmHWM") - before))


def memory(field: str) -> float:
    """MiB of this process, from Linux."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
