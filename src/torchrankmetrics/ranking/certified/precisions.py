"""In which precisions products are worth it: a rule, and for bfloat16 a measurement, once per machine and width."""

import time
from functools import cache
from typing import Any

import torch

from torchrankmetrics.ranking.certified.tiles import BFLOAT16, FLOAT32, FLOAT64

_WIDTH, _QUERIES, _KEPT_QUERIES = 64, 1000, 64  # from here on a bfloat16 copy pays
_ROWS, _COLUMNS, _RUNS = 256, 2048, 3
_SHARE = 0.7  # of the time of the float32 product


def precisions(width: int, num_queries: int, *, on_cpu: bool, compiled: bool, kept: bool) -> list[torch.dtype]:
    """Precisions of the products, in order; the last is float64. The ranks never depend on them.

    Args:
        width: d of the embeddings.
        num_queries: of this call.
        on_cpu: whether they are there.
        compiled: whether cells are counted by Numba, without which bfloat16 is slow to count.
        kept: whether a copy of the candidates serves more calls.
    """
    found = [FLOAT32, FLOAT64] if _float32_is_whole() else [FLOAT64]
    enough = width >= _WIDTH and num_queries >= (_KEPT_QUERIES if kept else _QUERIES)
    if on_cpu and compiled and enough and _halves_pay((width + 31) // 32 * 32, torch.get_num_threads()):
        found.insert(0, BFLOAT16)
    return found


def _float32_is_whole() -> bool:
    """Whether torch multiplies float32 as it is, and not rounded to TF32 or bfloat16, which no bound here covers."""
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    reduced = getattr(matmul, "fp32_precision", "none") not in ("none", "ieee")
    return torch.get_float32_matmul_precision() == "highest" and not reduced


@cache
def _halves_pay(width: int, threads: int) -> bool:
    """Measure one tile in both precisions; and see that the sums of bfloat16 products are made in float32."""
    mkldnn: Any = torch.backends.mkldnn
    if not (mkldnn.is_available() and mkldnn.enabled):
        return False  # otherwise torch has no kernel for the units of the processor
    single = [torch.ones(size, width, device="cpu") for size in (_ROWS, _COLUMNS)]
    half = [x.to(BFLOAT16) for x in single]
    half[1][:, 0] = 2.0**12  # a sum in bfloat16 would stay there
    expected = torch.tensor(2.0**12 + width - 1).to(BFLOAT16)
    # a single row, and few columns, may be multiplied by other kernels
    for rows, columns in ((_ROWS, _COLUMNS), (1, _COLUMNS), (_ROWS, 1), (1, 1)):
        if not bool((torch.mm(half[0][:rows], half[1][:columns].T) == expected).all()):
            return False
    times = []
    for one, other in (half, single):
        out = one.new_empty(_ROWS, _COLUMNS)
        torch.mm(one, other.T, out=out)
        runs = []
        for _ in range(_RUNS):
            begin = time.perf_counter()
            torch.mm(one, other.T, out=out)
            runs.append(time.perf_counter() - begin)
        times.append(min(runs))
    return times[0] < _SHARE * times[1]
