"""In which precisions products are worth it: a rule, and for the lowest a measurement, once per machine and width."""

import time
from functools import cache
from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified.tiles import BFLOAT16, EIGHTHS, FLOAT32, FLOAT64

_WIDTH, _QUERIES = 64, 64  # from here on a copy in less precision pays
_WIDE = 128  # from here on two do: below, bfloat16 saves too little where eighths leave too much open
_ROWS, _COLUMNS, _RUNS = 256, 2048, 3
_SHARE = 0.7  # of the time of the float32 product
_WIDEST = 1 << 16  # products of eighths are int32 numbers


def precisions(width: int, num_queries: int, *, on_cpu: bool, compiled: bool) -> list[torch.dtype]:
    """Precisions of the products, in order; the last is float64. The ranks never depend on them.

    Args:
        width: d of the embeddings.
        num_queries: of this call.
        on_cpu: whether they are there.
        compiled: whether cells are counted by Numba, without which less than float32 is slow to count.
    """
    found = [FLOAT32, FLOAT64] if _float32_is_whole() else [FLOAT64]
    if not (on_cpu and compiled and width >= _WIDTH and num_queries >= _QUERIES):
        return found
    like, threads = (width + 31) // 32 * 32, torch.get_num_threads()
    in_eighths = width <= _WIDEST and _eighths_pay(width, threads)
    if (width >= _WIDE or not in_eighths) and _halves_pay(like, threads):
        found.insert(0, BFLOAT16)
    if in_eighths:
        found.insert(0, EIGHTHS)
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
    expected = torch.tensor(2.0**12 + width - 1, device="cpu").to(BFLOAT16)
    # a single row, and few columns, may be multiplied by other kernels
    for rows, columns in ((_ROWS, _COLUMNS), (1, _COLUMNS), (_ROWS, 1), (1, 1)):
        if not bool((torch.mm(half[0][:rows], half[1][:columns].T) == expected).all()):
            return False
    out = half[0].new_empty(_ROWS, _COLUMNS)
    return _least(lambda: torch.mm(half[0], half[1].T, out=out)) < _SHARE * _least_of_float32(width)


@cache
def _eighths_pay(width: int, threads: int) -> bool:
    """The same of integer products; and see that the largest are exact, for some processors saturate their sums."""
    one = torch.full((_ROWS, width), 127, dtype=torch.int8, device="cpu")
    one[:, ::3] = -127
    other = one[:1].repeat(_COLUMNS, 1)  # the largest products, and others
    other[1::2] = other[1::2].roll(1, 1)
    expected = (one[0].long() * other.long()).sum(1)
    try:
        for rows, columns in ((_ROWS, _COLUMNS), (1, _COLUMNS), (_ROWS, 2), (1, 1), (17, 33)):
            if not bool((multiplied(one[:rows], other[:columns]) == expected[:columns]).all()):
                return False
        out = torch.empty(_ROWS, _COLUMNS, dtype=torch.int32, device="cpu")
        took = _least(lambda: multiplied(one, other, out))
    except (AttributeError, RuntimeError):  # torch has no such product everywhere
        return False
    return took < _SHARE * _least_of_float32(width)


def multiplied(one: Tensor, other: Tensor, out: Tensor | None = None) -> Tensor:
    """Integer products (n, m) of int8 rows (n, d) with rows (m, d)."""
    if out is None:
        return torch._int_mm(one, other.T)
    return torch._int_mm(one, other.T, out=out)


def _least_of_float32(width: int) -> float:
    one, other = (torch.ones(size, width, device="cpu") for size in (_ROWS, _COLUMNS))
    out = torch.empty(_ROWS, _COLUMNS, device="cpu")
    return _least(lambda: torch.mm(one, other.T, out=out))


def _least(run: Any) -> float:
    """Seconds of the fastest of some runs, after one that does not count."""
    run()
    times = []
    for _ in range(_RUNS):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)
